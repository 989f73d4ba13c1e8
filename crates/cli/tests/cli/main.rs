//! The `arck` command as users meet it: its files, its exit statuses, and what it says.

mod addresses;
mod archives;
mod beneath;
mod carried;
mod checking;
mod forged;
mod golden;
mod lacking;
mod leaving;
mod managed;
mod meeting;
mod mistakes;
mod mounting;
mod owners;
mod pools;
mod reach;
mod restarted;
mod running;
mod shells;
mod status;
mod support;
mod terminals;
mod travel;
mod users;
mod violations;
mod watching;
