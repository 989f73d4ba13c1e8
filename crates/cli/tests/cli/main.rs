//! The `arck` command as users meet it: its files, its exit statuses, and what it says.

mod addresses;
mod archives;
mod carried;
mod checking;
mod golden;
mod lacking;
mod leaving;
mod meeting;
mod mistakes;
mod owners;
mod pools;
mod reach;
mod restarted;
mod running;
mod shells;
mod status;
mod support;
mod travel;
mod users;
mod violations;
