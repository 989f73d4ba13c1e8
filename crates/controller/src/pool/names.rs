//! Names in a pool's directory of what is told its users, and is no part of the format.

/// Directory in a pool's directory for deltas that could not be folded.
pub const ASIDE: &str = "aside";

/// File in a pool's directory to which refused deltas are logged, one line each.
pub const VIOLATIONS_LOG: &str = "violations.log";

/// The lines before, once the log has become too long.
pub const VIOLATIONS_LOG_OLD: &str = "violations.log.old";

/// Directory of what advisory locks are kept by.
pub const LOCK_FILES: &str = "lock-files";

/// Directory in which the ends of named pipes meet.
pub const NAMED_PIPES: &str = "named-pipes";

/// Directory of what sockets are bound to.
pub const SOCKETS: &str = "sockets";

/// Directory in which they are bound.
pub const SOCKETS_BINDING: &str = "sockets-binding";

/// The controller's socket before all may connect who are to.
pub const SOCKET_BINDING: &str = "socket-binding";

/// Directory of what programs watch in place of inodes.
pub const WATCHED: &str = "watched";
