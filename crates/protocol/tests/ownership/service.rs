//! How the model's sessions reach its controller: at once, or through the real rings with a
//! controller thread that sleeps when there is nothing to do.
//!
//! # Invariants
//! * The wake descriptor is a counter that is never read; the thread sleeps until it has moved
//!   since the last sleep (edge-triggered `epoll`).
//! * Nothing here times out: a wake-up that is lost shows as a deadlock.

use crate::controller::Controller;
use arck_core_state::primitive::{AtomicU32, Ordering};
use arck_protocol::control::{ControlHeader, RequestSlot};
use arck_protocol::ring::Ring;
use arck_protocol::{Request, Response};
use rustix::io::Errno;
use shuttle::sync::{Condvar, Mutex};
use std::time::Duration;

/// Longer than any run.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// A way to the controller.
pub enum Channel {
    /// Whoever asks runs the controller's code, one at a time. Fewer steps, so the checker
    /// sees more of the ownership protocol.
    Direct(Mutex<Controller>),
    Rings(Rings),
}

/// The rings of all sessions.
pub struct Rings {
    sessions: Vec<(ControlHeader, Vec<RequestSlot>)>,
    /// Writes to wake descriptors, and whether to end.
    wake: Mutex<(u64, bool)>,
    woken: Condvar,
    /// Not 0: sleep without looking at the doorbells once more.
    careless: AtomicU32,
}

impl Rings {
    pub fn new(sessions: usize, slots: usize, careless: bool) -> Rings {
        let session = || {
            let slots = (0..slots).map(|_| RequestSlot::default()).collect();
            (ControlHeader::default(), slots)
        };
        let rings = Rings {
            sessions: (0..sessions).map(|_| session()).collect(),
            wake: Mutex::new((0, false)),
            woken: Condvar::new(),
            careless: AtomicU32::new(u32::from(careless)),
        };
        rings.set_awake(1);
        rings
    }

    fn ring(&self, session: usize) -> Ring<'_> {
        let (header, requests) = &self.sessions[session];
        Ring {
            header,
            requests,
            member: 1,
        }
    }

    fn set_awake(&self, awake: u32) {
        for (header, _) in &self.sessions {
            header.awake.store(awake, Ordering::SeqCst);
        }
    }

    fn write_wake(&self) {
        self.wake.lock().expect("no panic").0 += 1;
        self.woken.notify_all();
    }

    /// Ends the controller's thread, once it has nothing to do.
    pub fn end(&self) {
        self.wake.lock().expect("no panic").1 = true;
        self.woken.notify_all();
    }

    fn poll(&self, serve: &mut impl FnMut(usize, &Request) -> Response) -> bool {
        let mut any = false;
        for session in 0..self.sessions.len() {
            let ring = self.ring(session);
            let rung = ring.rung();
            any |= rung != 0;
            for slot in (0..ring.requests.len()).filter(|slot| rung >> slot & 1 == 1) {
                if let Some(request) = ring.receive(slot) {
                    let request = request.expect("what was put is what is taken");
                    ring.respond(slot, &serve(session, &request));
                }
            }
        }
        any
    }

    /// The controller's thread, in the order of the real service.
    pub fn run(&self, mut serve: impl FnMut(usize, &Request) -> Response) {
        let mut seen = 0;
        loop {
            if self.poll(&mut serve) {
                continue;
            }
            self.set_awake(0);
            let looks = self.careless.load(Ordering::Relaxed) == 0;
            if looks && self.poll(&mut serve) {
                self.set_awake(1);
                continue;
            }
            let wake = self.wake.lock().expect("no panic");
            let wake = self
                .woken
                .wait_while(wake, |(count, end)| *count == seen && !*end);
            let (count, end) = *wake.expect("no panic");
            if end {
                return;
            }
            seen = count;
            self.set_awake(1);
        }
    }
}

impl Channel {
    /// Asks, and waits for the answer.
    pub fn ask(&self, session: usize, request: &Request) -> Result<Response, Errno> {
        match self {
            Channel::Direct(controller) => {
                let mut controller = controller.lock().expect("no panic");
                Ok(controller.serve(session, request))
            }
            Channel::Rings(rings) => {
                let ring = rings.ring(session);
                ring.request(|| rings.write_wake(), request, PATIENCE)
            }
        }
    }
}
