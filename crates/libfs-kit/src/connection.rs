//! The connection with the controller, and what is done while there is none.
//!
//! A controller may end at any time and be started again. The session does not end with it: what it
//! owns it can go on changing. Whatever needs the controller waits here, at most
//! [`Connection::patience`], connects again by itself, and proves which session it is; the request
//! that waited stands in control memory, which the new controller gets, and is answered by it.
//!
//! # Invariants
//! * The numbers of the descriptors stay the same for as long as the session lives: others of the
//!   process know by them whose they are.
//! * `socket` is held for one exchange, or while the connection is made anew.
//! * A request is taken back only while the connection is cut, under that lock: no controller has
//!   the control memory then.
//! * One line on standard error per outage.

use crate::received::Received;
use arck_core_state::layout;
use arck_protocol::control::ControlMemory;
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::{self, Answer, Call, Caller, Welcome, receive_answer_or_part};
use arck_protocol::{PROTOCOL_VERSION, ring};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use rustix::fs::FileType;
use rustix::io::{DupFlags, Errno};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a request may take, and how long a controller that is gone is waited for, if
/// `ARCK_WAIT` (seconds) does not say otherwise.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Pause between two attempts to connect.
pub const PAUSE: Duration = Duration::from_millis(20);
/// A controller that is gone for so long is worth a line: one that is started again at once is not.
const GONE: Duration = Duration::from_millis(500);
/// A controller that is there and does not answer for so long is worth a line.
const SILENT: Duration = Duration::from_secs(3);

/// What `ARCK_WAIT` said when it was noted, in microseconds plus one; 0: it was not.
static NOTED: AtomicU64 = AtomicU64::new(0);

/// From now on `ARCK_WAIT` counts as `text`, and the environment is not looked at: for whoever has read it
/// while nobody could be changing it.
pub fn note_wait(text: Option<&str>) {
    let noted = u64::try_from(patience_of(text).as_micros()).unwrap_or(u64::MAX);
    NOTED.store(noted.saturating_add(1), Ordering::Relaxed);
}

/// Whether the pool's last controller let all users in (`arck serve --shared`) and has not ended in order: its socket is there yet. Nobody is
/// believed by it: the socket of one who serves is asked, not looked at.
pub fn was_for_all(pool: &Path) -> bool {
    let socket = rustix::fs::lstat(pool.join(layout::SOCKET));
    socket.is_ok_and(|socket| {
        FileType::from_raw_mode(socket.st_mode) == FileType::Socket && socket.st_mode & 0o002 != 0
    })
}

/// The command by which a pool is served again, as it was.
pub fn serving(pool: &Path) -> String {
    let shared = if was_for_all(pool) { " --shared" } else { "" };
    format!("arck serve{shared} {}", pool.display())
}

/// What `ARCK_WAIT` says.
pub fn patience() -> Duration {
    match NOTED.load(Ordering::Relaxed) {
        0 => patience_of(std::env::var("ARCK_WAIT").ok().as_deref()),
        noted => Duration::from_micros(noted - 1),
    }
}

fn patience_of(wish: Option<&str>) -> Duration {
    let seconds = wish.and_then(|text| text.trim().parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| (0.0..1e6).contains(seconds));
    seconds.map_or(PATIENCE, Duration::from_secs_f64)
}

/// Where a session's descriptors are placed.
static DESCRIPTORS_FROM: AtomicI32 = AtomicI32::new(0);

/// From now on sessions keep their descriptors at this number or above, if there is room: out of the way of
/// a program that chooses numbers itself.
pub fn keep_descriptors_from(number: i32) {
    DESCRIPTORS_FROM.store(number, Ordering::Relaxed);
}

/// The same descriptor, where it is to be kept.
pub(crate) fn placed(descriptor: OwnedFd) -> OwnedFd {
    let from = DESCRIPTORS_FROM.load(Ordering::Relaxed);
    match descriptor.as_raw_fd() < from {
        true => rustix::io::fcntl_dupfd_cloexec(&descriptor, from).unwrap_or(descriptor),
        false => descriptor,
    }
}

/// Whom the kernel tells of as the sender of what this thread sends: user and group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Sender([u32; 2]);

impl Sender {
    pub fn now() -> Sender {
        use rustix::process::{getgid, getuid};
        Sender([getuid().as_raw(), getgid().as_raw()])
    }
}

/// A description that other processes have open too, by a number that it had, and which file it is.
struct Told {
    number: i32,
    file: (u64, u64),
    call: Call,
}

struct Socket {
    /// `None` once the session has ended.
    socket: Option<OwnedFd>,
    /// Control memory, and the region of a group, for the next controller; as long as there is a
    /// socket.
    control: Option<OwnedFd>,
    region: Option<OwnedFd>,
    /// Answers that nobody waits for any more, and that are still to come.
    owed: u32,
}

/// See the module's head.
pub struct Connection {
    pool: PathBuf,
    session: u32,
    secret: [u64; 2],
    made_by: Sender,
    member: u16,
    group: Vec<u8>,
    patience: Duration,
    socket: Mutex<Socket>,
    /// The socket's number; -1 once the session has ended.
    number: AtomicI32,
    /// Those of control memory and, perhaps (else -1), of the region.
    others: [AtomicI32; 2],
    wake: OwnedFd,
    /// Descriptions of which a controller was told by this process, to tell the next one of.
    told: Mutex<Vec<Told>>,
    /// It was waited for in vain: nobody waits again until it is back.
    gave_up: AtomicBool,
    has_said: AtomicBool,
}

impl Connection {
    /// `group`: the trust group's name, and its region.
    pub fn new(
        pool: &Path,
        patience: Duration,
        welcome: &Welcome,
        (socket, made_by): (OwnedFd, Sender),
        wake: OwnedFd,
        control: OwnedFd,
        group: Option<(&[u8], OwnedFd)>,
    ) -> Connection {
        let (group, region) = match group {
            Some((name, region)) => (name.to_vec(), Some(placed(region))),
            None => (Vec::new(), None),
        };
        let [socket, wake, control] = [socket, wake, control].map(placed);
        Connection {
            // The program may change its directory.
            pool: std::path::absolute(pool).unwrap_or_else(|_| pool.into()),
            session: welcome.session,
            secret: welcome.secret,
            made_by,
            member: welcome.member,
            group,
            patience,
            number: AtomicI32::new(socket.as_raw_fd()),
            others: [
                AtomicI32::new(control.as_raw_fd()),
                AtomicI32::new(region.as_ref().map_or(-1, AsRawFd::as_raw_fd)),
            ],
            socket: Mutex::new(Socket {
                socket: Some(socket),
                control: Some(control),
                region,
                owed: 0,
            }),
            wake,
            told: Mutex::new(Vec::new()),
            gave_up: AtomicBool::new(false),
            has_said: AtomicBool::new(false),
        }
    }

    /// Every descriptor that is kept as long as the session lasts.
    pub fn descriptors(&self) -> Vec<i32> {
        let socket = self.lock();
        let kept = [&socket.socket, &socket.control, &socket.region];
        let kept = kept.into_iter().flatten().map(AsRawFd::as_raw_fd);
        kept.chain([self.wake.as_raw_fd()]).collect()
    }

    /// How long whatever needs the controller waits for it.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// To be held while segments are mapped, so that none is mapped twice.
    pub fn one_at_a_time(&self) -> impl Drop + '_ {
        self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the connection up for good.
    pub fn close(&self) {
        let mut socket = self.lock();
        // No child is made meanwhile that finds numbers of what is closed already.
        arck_pm::forks::mapping(|| {
            self.number.store(-1, Ordering::Release);
            for other in &self.others {
                other.store(-1, Ordering::Release);
            }
            socket.socket = None;
            socket.control = None;
            socket.region = None;
        });
    }

    /// Whether the process is still who has made it: from others the controller takes no word, which it tells the
    /// process itself, and nobody else.
    pub fn is_of_process(&self) -> bool {
        self.made_by == Sender::now()
    }

    fn is_closed(&self) -> bool {
        self.number.load(Ordering::Acquire) < 0
    }

    /// In a forked child: closes all that its parent's session has open, without a word to anybody.
    /// A thread of the parent may have held any lock. `had_ended`: whoever ended the session closes its wake
    /// descriptor, or has, and its number may be that of something else.
    pub fn close_in_child(&self, had_ended: bool) {
        let [control, region] = &self.others;
        for number in [&self.number, control, region] {
            let number = number.swap(-1, Ordering::AcqRel);
            if number >= 0 {
                // SAFETY: this child's copy of a descriptor that the session keeps open under that
                // number as long as it is noted here; nobody uses it here any more.
                unsafe { rustix::io::close(number) };
            }
        }
        if !had_ended {
            // SAFETY: as above; it is open as long as the session.
            unsafe { rustix::io::close(self.wake.as_raw_fd()) };
        }
    }

    /// Whether the controller's end is closed. A system call.
    pub fn is_cut(&self) -> bool {
        let number = self.number.load(Ordering::Acquire);
        if number < 0 {
            return false;
        }
        // SAFETY: the socket's, which stays open under that number as long as the session; where
        // the session ends meanwhile the answer does not matter.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        is_cut(socket)
    }

    /// If the connection is cut: connects again. Blocks, at most as long as `patience` says. EIO if
    /// there is no controller by then, or it does not know the session any more.
    pub fn restore(&self, control: &ControlMemory) -> Result<(), Errno> {
        self.restore_locked(&mut self.lock(), control)
    }

    fn restore_locked(&self, socket: &mut Socket, control: &ControlMemory) -> Result<(), Errno> {
        let (Some(old), Some(memory)) = (&socket.socket, &socket.control) else {
            return Err(Errno::IO);
        };
        let memory = [Some(memory), socket.region.as_ref()];
        let memory: Vec<BorrowedFd<'_>> = memory.into_iter().flatten().map(AsFd::as_fd).collect();
        if !is_cut(old.as_fd()) {
            return Ok(());
        }
        let began = Instant::now();
        let deadline = match self.gave_up.load(Ordering::Relaxed) {
            true => began,
            false => began + self.patience,
        };
        loop {
            match self.resume(old.as_fd(), &memory) {
                Ok(()) => break,
                Err(
                    errno @ (Errno::STALE | Errno::ACCESS | Errno::PROTONOSUPPORT | Errno::INVAL),
                ) => {
                    // It has come to its end. So for everybody who waits.
                    self.has_said.store(false, Ordering::Relaxed);
                    self.say(&format!(
                        "does not go on with this program's session: {errno}"
                    ));
                    let closed = Errno::IO.raw_os_error().unsigned_abs();
                    control.header.closed.store(closed, Ordering::SeqCst);
                    return Err(Errno::IO);
                }
                Err(_) if Instant::now() >= deadline => {
                    self.gave_up.store(true, Ordering::Relaxed);
                    return Err(Errno::IO);
                }
                Err(_) => {
                    if began.elapsed() >= GONE.min(self.patience / 2) {
                        self.say_waiting("is gone");
                    }
                    arck_protocol::wait::sleep(PAUSE);
                }
            }
        }
        socket.owed = 0;
        self.tell_again(socket);
        self.gave_up.store(false, Ordering::Relaxed);
        self.has_said.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Notes that a description was told of.
    pub fn note_told(&self, description: BorrowedFd<'_>, call: &Call) {
        let Ok(file) = identity(description) else {
            return;
        };
        let number = description.as_raw_fd();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|other| other.number != number);
        told.push(Told {
            number,
            file,
            call: call.clone(),
        });
    }

    /// Tells a new controller of the descriptions that are still there.
    fn tell_again(&self, socket: &mut Socket) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|told| {
            // SAFETY: only asked which file it is, and sent if it is the one that it was; should it
            // be closed meanwhile, the kernel says so.
            let description = unsafe { BorrowedFd::borrow_raw(told.number) };
            identity(description) == Ok(told.file)
                && self.exchange(socket, &told.call, &[description]).is_ok()
        });
    }

    /// One attempt. The new socket and wake descriptor take the old ones' numbers.
    fn resume(&self, old: BorrowedFd<'_>, memory: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        let fresh = connect(&self.pool)?;
        let socket = fresh.first().ok_or(Errno::NOTCONN)?;
        let call = Call::Resume {
            version: PROTOCOL_VERSION,
            session: self.session,
            secret: self.secret,
            member: self.member,
            caller: Caller::of_process(&self.group),
        };
        socket::or_last_word(send(socket.as_fd(), &call, memory))?;
        if !wait_readable(socket.as_fd(), self.patience) {
            return Err(Errno::TIMEDOUT);
        }
        let (answer, descriptors) = receive(socket.as_fd())?.whole()?;
        let wake = match (answer, &*descriptors) {
            (Answer::Resumed, [wake]) => wake,
            (Answer::Error(errno, _), _) => return Err(Errno::from_raw_os_error(errno)),
            _ => return Err(Errno::PROTO),
        };
        replace(self.wake.as_fd(), wake)?;
        replace(old, socket)
    }

    /// One exchange. `again`: if the controller is gone, it is waited for, and the call made again.
    /// ETIMEDOUT if it does not answer in time; EIO if the session is not of who the process, or this thread,
    /// is now.
    pub fn call(
        &self,
        call: &Call,
        descriptors: &[BorrowedFd<'_>],
        again: Option<&ControlMemory>,
    ) -> Result<Answered, Errno> {
        let mut socket = self.lock();
        loop {
            match self.exchange(&mut socket, call, descriptors) {
                Err(Errno::CONNRESET | Errno::PIPE | Errno::NOTCONN) if socket.socket.is_some() => {
                    let control = again.ok_or(Errno::CONNRESET)?;
                    self.restore_locked(&mut socket, control)?;
                }
                other => return other,
            }
        }
    }

    fn exchange(
        &self,
        socket: &mut Socket,
        call: &Call,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<Answered, Errno> {
        let Socket { socket, owed, .. } = socket;
        let socket = socket.as_ref().ok_or(Errno::NOTCONN)?.as_fd();
        send(socket, call, descriptors)?;
        *owed += 1;
        let mut ahead = Received::default();
        let mut are_lost = false;
        loop {
            if !wait_readable(socket, SILENT.min(self.patience)) {
                self.say_waiting("does not answer");
                let rest = self.patience.saturating_sub(SILENT);
                if !wait_readable(socket, rest) {
                    return Err(Errno::TIMEDOUT);
                }
            }
            // There is something to be read, and nobody else reads.
            let answered = receive(socket)?;
            if answered.answer == Answer::Ahead {
                (ahead, are_lost) = (answered.descriptors, answered.are_lost);
                continue;
            }
            // Also if descriptors that came with it are lost: no other answer will come.
            *owed -= 1;
            // What an earlier call gave up waiting for comes first.
            if *owed == 0 {
                // Who is somebody else is told so, and that is all that is said. What this thread's own ids are
                // tells little before: in a namespace of users they are others there.
                const PERM: i32 = Errno::PERM.raw_os_error();
                if matches!(answered.answer, Answer::Error(PERM, _)) && !self.is_of_process() {
                    return Err(Errno::IO);
                }
                return Ok(Answered {
                    descriptors: ahead.and(answered.descriptors),
                    are_lost: are_lost || answered.are_lost,
                    ..answered
                });
            }
            (ahead, are_lost) = (Received::default(), false);
        }
    }

    /// The answer to a request that was submitted. Blocks; see the module's head. EIO, also where the process
    /// has ended the session meanwhile; ETIMEDOUT.
    pub fn finish(
        &self,
        control: &ControlMemory,
        index: usize,
    ) -> Result<arck_protocol::Response, Errno> {
        // How often it is looked whether the controller is still there.
        const LOOK: Duration = Duration::from_millis(100);
        let mut began = Instant::now();
        loop {
            let waited = began.elapsed();
            let left = self.patience.saturating_sub(waited);
            match ring::finish(control, index, LOOK.min(left)) {
                Err(Errno::TIMEDOUT) if self.is_closed() => return Err(Errno::IO),
                Err(Errno::TIMEDOUT) if self.is_cut() => {
                    let restored = self.restore(control);
                    began = Instant::now();
                    if let Err(errno) = restored
                        && self.withdraw(control, index)
                    {
                        return Err(errno);
                    }
                }
                Err(Errno::TIMEDOUT) if waited < self.patience => {
                    if waited > SILENT {
                        self.say_waiting("does not answer");
                    }
                }
                other => return other,
            }
        }
    }

    /// Takes a request back that nobody is there to answer.
    fn withdraw(&self, control: &ControlMemory, index: usize) -> bool {
        let socket = self.lock();
        let is_cut = socket
            .socket
            .as_ref()
            .is_none_or(|socket| is_cut(socket.as_fd()));
        is_cut && ring::withdraw(control, index)
    }

    fn say_waiting(&self, what: &str) {
        if self.patience >= PAUSE {
            let seconds = self.patience.as_secs_f64();
            self.say(&format!(
                "{what}; waiting for it, at most {seconds} s ({})",
                serving(&self.pool)
            ));
        }
    }

    fn say(&self, what: &str) {
        if self.has_said.swap(true, Ordering::Relaxed) {
            return;
        }
        let line = format!("arck: the controller of {} {what}\n", self.pool.display());
        crate::telling::tell(line.as_bytes());
    }
}

/// An answer of the controller's.
pub struct Answered {
    pub answer: Answer,
    pub descriptors: Received,
    /// Not all that came are there: this process may have no more.
    pub are_lost: bool,
}

impl Answered {
    /// The answer with all that came with it. EMFILE if some of it is lost.
    pub fn whole(self) -> Result<(Answer, Received), Errno> {
        match self.are_lost {
            true => Err(Errno::MFILE),
            false => Ok((self.answer, self.descriptors)),
        }
    }
}

/// Receives what there is to be received.
fn receive(socket: BorrowedFd<'_>) -> Result<Answered, Errno> {
    let ((answer, are_lost), descriptors) = Received::by(|| receive_answer_or_part(socket))?;
    Ok(Answered {
        answer,
        descriptors,
        are_lost,
    })
}

fn identity(file: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(file).map(|status| (status.st_dev, status.st_ino))
}

fn is_cut(socket: BorrowedFd<'_>) -> bool {
    let mut asked = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    matches!(poll(&mut asked, Some(&Timespec::default())), Ok(1..))
        && asked[0].revents().intersects(gone)
}

/// False when the time is over.
fn wait_readable(socket: BorrowedFd<'_>, patience: Duration) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let time = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        match poll(
            &mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)],
            Some(&time),
        ) {
            Ok(0) => return false,
            Err(Errno::INTR) => {}
            // What is wrong shows when it is read.
            Ok(_) | Err(_) => return true,
        }
    }
}

fn send(socket: BorrowedFd<'_>, call: &Call, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut buffer = [0u8; MESSAGE_MAX];
    let length = call.encode(&mut buffer).map_err(|_| Errno::INVAL)?;
    socket::send(socket, &buffer[..length], descriptors)
}

/// Puts another open file in the place of `old`, whose number stays.
fn replace(old: BorrowedFd<'_>, fresh: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: the number of a descriptor that its owner keeps; it is not closed here.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(old.as_raw_fd()) });
    rustix::io::dup3(fresh, &mut place, DupFlags::CLOEXEC)
}

/// Whether `patience` is over since this was first asked. The clock is not looked at before: who gets in at
/// once does not need it.
pub(crate) fn is_over(deadline: &mut Option<Instant>, patience: Duration) -> bool {
    let now = Instant::now();
    now >= *deadline.get_or_insert(now + patience)
}

/// As [`connect`], waiting at most `patience` for a controller that is about to be started
/// again, with what has been waited already (see [`is_over`]).
pub(crate) fn connect_patiently(
    pool: &Path,
    deadline: &mut Option<Instant>,
    patience: Duration,
) -> Result<Received, Errno> {
    loop {
        match connect(pool) {
            Err(Errno::CONNREFUSED | Errno::NOENT)
                if !is_over(deadline, patience) && pool.join(layout::SUPERBLOCK).exists() =>
            {
                arck_protocol::wait::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

/// Says who wants a session. Waits for the answer, unless the controller ends. ETIMEDOUT if there is none by then;
/// EMFILE if this process may not have the descriptors that come with it.
pub(crate) fn greet(
    socket: &Received,
    caller: Caller,
    patience: Duration,
) -> Result<(Answer, Received), Errno> {
    let socket = socket.first().ok_or(Errno::NOTCONN)?.as_fd();
    socket::or_last_word(send(socket, &Call::hello_of(caller), &[]))?;
    if !wait_readable(socket, patience) {
        return Err(Errno::TIMEDOUT);
    }
    receive(socket)?.whole()
}

/// Connects to `POOL/socket`, for who asks something of the controller and opens no session. ENOENT,
/// ECONNREFUSED: nobody serves the pool.
pub fn connect_socket(pool: &Path) -> Result<OwnedFd, Errno> {
    let made = connect(pool)?.give_to_children().pop();
    made.ok_or(Errno::NOTCONN)
}

/// The same for a session: one descriptor.
fn connect(pool: &Path) -> Result<Received, Errno> {
    use rustix::fs::{Mode, OFlags};
    // Through a descriptor of the directory, so that the length of the path does not matter.
    let directory = rustix::fs::open(
        pool,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let path = format!("/proc/self/fd/{}/{}", directory.as_raw_fd(), layout::SOCKET);
    let ((), made) = Received::by(|| {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
            .map(|socket| ((), vec![socket]))
    })?;
    let socket = made.first().ok_or(Errno::NOTCONN)?;
    rustix::net::connect(socket, &SocketAddrUnix::new(path)?)?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test of this program that notes it.
    #[test]
    fn what_was_noted_counts() {
        for (text, expected) in [
            (Some("4"), Duration::from_secs(4)),
            (Some(" 0.25 "), Duration::from_millis(250)),
            (Some("0"), Duration::ZERO),
            (Some("-1"), PATIENCE),
            (Some("soon"), PATIENCE),
            (None, PATIENCE),
        ] {
            note_wait(text);
            assert_eq!(patience(), expected, "{text:?}");
        }
    }
    /// Somebody listens, or a controller is stopped: who greeted waited for ever.
    #[test]
    fn a_greeting_that_is_not_answered_is_given_up() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, _silent) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        let (_, ours) = Received::by(|| Ok::<_, Errno>(((), vec![ours]))).unwrap();
        let caller = Caller::of_process(b"");
        let answer = greet(&ours, caller, Duration::from_millis(20));
        assert_eq!(answer.err(), Some(Errno::TIMEDOUT));
    }
}
