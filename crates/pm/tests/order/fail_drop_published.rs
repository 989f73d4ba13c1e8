#![deny(unused_must_use)]
use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let durable = order::fence(page.write(64, b"name")?.flush());
    page.publish(0, 1, durable)?;
    Some(())
}
