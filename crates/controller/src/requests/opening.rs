//! Opening a session.

use crate::core::Core;
use crate::sessions::arena::{self, Arena};
use crate::sessions::group::Group;
use crate::sessions::lent::Lent;
use crate::sessions::sent::Greeting;
use crate::sessions::session::{Live, Session, secret};
use arck_controller_state::sessions::{GROUPS_MAX, SESSIONS_MAX, SessionEntry};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{PAGE_SIZE, cast};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::control::CONTROL_SIZE;
use arck_protocol::socket::{Caller, REGION_SIZE, REGION_SIZE_MAX};
use arck_verifier::Credentials;
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, Mode, SealFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// A group's region, all zeroes: a memory file that nobody makes longer or shorter. EINVAL.
fn make_region(wish: u64) -> Result<OwnedFd, Errno> {
    let size = match wish {
        0 => REGION_SIZE,
        wish if wish <= REGION_SIZE_MAX && wish.is_multiple_of(PAGE_SIZE) => wish,
        _ => return Err(Errno::INVAL),
    };
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let region = rustix::fs::memfd_create("arck-group", flags)?;
    rustix::fs::fchmod(&region, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::ftruncate(&region, size)?;
    rustix::fs::fcntl_add_seals(
        &region,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(region)
}

impl Core {
    /// Opens a session for a connection, or joins one. EMFILE, ENOSPC; EAGAIN when there are too
    /// many.
    pub fn open_session(
        &mut self,
        credentials: Credentials,
        caller: &Caller,
    ) -> Result<(SessionNumber, Greeting), Errno> {
        if let Some(joined) = self.sessions.join_session(&credentials, caller) {
            return joined;
        }
        let user = credentials.uid;
        self.sessions.may_open_session(user)?;
        let mut is_taken = [false; SESSIONS_MAX];
        for session in self.sessions.all.values() {
            is_taken[session.index] = true;
        }
        let index = is_taken.iter().position(|taken| !taken);
        let index = index.ok_or(Errno::AGAIN)?;
        let pool = &self.sessions.state.pool;
        let control = rustix::fs::memfd_create(
            "arck-control",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        rustix::fs::fchmod(&control, Mode::RUSR | Mode::WUSR)?;
        rustix::fs::ftruncate(&control, CONTROL_SIZE as u64)?;
        rustix::fs::fcntl_add_seals(
            &control,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        let mapping = Mapping::new(&control, 0, CONTROL_SIZE, MapOptions::READ_WRITE)
            .map_err(|error| error.errno())?;
        let region = make_region(caller.region)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wake_sent = rustix::io::fcntl_dupfd_cloexec(&wake, 0)?;
        let number = arena::next_session(pool)?;
        let credentials = Credentials {
            session: number,
            ..credentials
        };
        let mut entry = SessionEntry {
            session: number,
            group_count: cast::count(credentials.groups.len().min(GROUPS_MAX)),
            uid: credentials.uid,
            gid: credentials.gid,
            branch_pages: 0,
            delta_pages: 0,
            secret: secret()?,
            credits: 0,
            done: 0,
            fold_copies_lost: 0,
            groups: [0; GROUPS_MAX],
        };
        for (place, &group) in entry.groups.iter_mut().zip(&credentials.groups) {
            *place = group;
        }
        let arena = Arena::create(pool, number, user, &self.sessions.workers)?;
        (entry.branch_pages, entry.delta_pages) = arena.pages();
        let allowance = arena.allowance(number, arena.pages())?;
        self.sessions.lookout.lend(Lent::Arena(number), allowance);
        let stored = arena::store_entry(pool, index, &entry).inspect_err(|_| {
            pool.remove_file(&arena::name(number));
            self.sessions.lookout.forget(Lent::Arena(number));
        })?;
        self.sessions.state.journal.await_fence(stored);
        let live = Live {
            control: mapping,
            wake,
        };
        live.control().header.awake.store(1, Ordering::SeqCst);
        let who = credentials.clone();
        let mut session = Session::new(number, credentials, index, arena, Some(live));
        session.members.group = Some(Group {
            name: caller.group.clone(),
            control,
            region,
        });
        let member = session.join_as_first(caller.process)?;
        self.sessions.all.insert(number, session);
        let greeting = self.sessions.greeting(number, member, wake_sent, true);
        if let Some(session) = self.sessions.all.get_mut(&number)
            && caller.group.is_empty()
        {
            // Nobody joins it.
            session.members.group = None;
        }
        let greeting = greeting.inspect_err(|_| self.owners().end_session(number, libc::EIO))?;
        self.freeing().prepare_classes(&who);
        self.sessions.give_first_credits(number);
        self.sessions.publish_free_counts(true);
        // Who stores the first bytes of a pool does not wait until there is a file for them.
        let kept = self.sessions.kept_pages();
        let state = &self.sessions.state;
        state.space.has_files_made(&state.pool, kept);
        Ok((number, greeting))
    }
}
