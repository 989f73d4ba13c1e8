//! What the service manager that started the controller is told (`sd_notify(3)`): when the pool is served, of what
//! its opening takes so long, and when it ends.
//!
//! # Invariants
//! * Nothing is said where no manager asked for it (`NOTIFY_SOCKET`), nor by a private controller, which has the
//!   environment of whoever started a program.
//! * What cannot be told keeps nobody from being served.

use crate::opening::{MOMENT, is_due};
use arck_controller::{Progress, ProgressHook};
use sd_notify::NotifyState;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two lines on how far the opening is.
const BETWEEN: Duration = Duration::from_secs(1);

/// Who started this, if it wants to be told.
pub struct Manager {
    is_there: bool,
}

impl Manager {
    pub fn new(is_private: bool) -> Manager {
        Manager {
            is_there: !is_private && std::env::var_os("NOTIFY_SOCKET").is_some(),
        }
    }

    /// How far the opening is, besides to whom `hook` tells it.
    pub fn opening(&self, hook: ProgressHook) -> ProgressHook {
        if !self.is_there {
            return hook;
        }
        let manager = Manager { is_there: true };
        let next = Mutex::new(Instant::now() + MOMENT);
        Arc::new(move |progress: Progress| {
            hook(progress);
            if is_due(&next, BETWEEN) {
                let Progress { step, done, all } = progress;
                let line = format!("opening, {}: {done} of {all}", step.name());
                manager.tell(&[NotifyState::Status(&line)]);
            }
        })
    }

    /// The pool is served from now on.
    pub fn ready(&self, pool: &Path) {
        let line = format!("serving {}", pool.display());
        self.tell(&[NotifyState::Ready, NotifyState::Status(&line)]);
    }

    /// It ends: what sessions have done is folded, and the pool closed.
    pub fn stopping(&self) {
        let line = "folding what programs did, and closing the pool";
        self.tell(&[NotifyState::Stopping, NotifyState::Status(line)]);
    }

    fn tell(&self, states: &[NotifyState<'_>]) {
        if self.is_there
            && let Err(error) = sd_notify::notify(states)
        {
            tracing::warn!("the service manager cannot be told: {error}");
        }
    }
}
