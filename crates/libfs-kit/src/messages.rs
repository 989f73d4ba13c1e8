//! What a LibFS may ask the controller for itself ([`Session::ask`](crate::Session::ask), and by the socket the
//! methods of [`session`](crate::session)), by name. Ownership, numbers, pages, room and recalls are asked
//! for by the [`engine`](crate::engine), as operations need them.

pub use arck_protocol::control::{ATTACHED_MAX, MAP_WRITABLE, MEMBERS, NO_OPEN_PLACE, map_entry};
pub use arck_protocol::message::listed::Listed;
pub use arck_protocol::message::{
    Named, READ_MAX, WRITE_MAX, Written, allocation, extended, which,
};
pub use arck_protocol::socket::{Access, Call, HandedOn, PIECE_MAX};
pub use arck_protocol::{InodeList, Request, Response};
