//! The window between the seal of a fold and what follows: the controller stands there as long as a test wants.

use crate::{Shorthand, TestPool};
use arck_controller::Options;
use arckfs::FileSystem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Whatever is waited for has come by then, however slow the machine is.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is to become of the controller that stands behind a seal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Next {
    GoesOn,
    Dies,
}

/// Stops the controller behind a seal, once it is armed.
pub struct Window {
    armed: Arc<AtomicBool>,
    sealed: Receiver<()>,
    next: Sender<Next>,
}

impl Window {
    /// A pool of `size` bytes whose controller stops, and seals for each fold.
    pub fn pool(size: u64) -> (TestPool, Window) {
        let armed = Arc::new(AtomicBool::new(false));
        let (says, sealed) = channel();
        let (next, heard) = channel();
        let (says, heard) = (Mutex::new(says), Mutex::new(heard));
        let switch = armed.clone();
        let hook = move |point: &'static str| {
            if point == "sealed" && switch.swap(false, Ordering::SeqCst) {
                says.lock().unwrap().send(()).unwrap();
                let next = heard.lock().unwrap().recv_timeout(PATIENCE);
                let next = next.expect("it is told what is next");
                assert!(next != Next::Dies, "here the controller dies");
            }
        };
        let options = Options {
            crash_hook: Some(Arc::new(hook)),
            seal_pages: 1,
            owned_kept: usize::MAX,
            ..Options::default()
        };
        let window = Window {
            armed,
            sealed,
            next,
        };
        (TestPool::with_options(size, options), window)
    }

    /// The next seal is one behind which the controller stops.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Waits until the controller stands there.
    pub fn wait(&self) {
        self.sealed.recv_timeout(PATIENCE).expect("it is sealed");
    }

    /// Folds a session in a thread, and gives back when its directories are sealed.
    pub fn open<'scope>(
        &self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        owner: &'scope FileSystem,
    ) {
        self.arm();
        scope.spawn(move || owner.fold(false));
        self.wait();
    }

    pub fn close(&self, next: Next) {
        self.next.send(next).unwrap();
    }
}
