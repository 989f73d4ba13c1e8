use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let flushed = page.write(64, b"name")?.flush();
    let published = page.publish(0, 1, flushed)?;
    let _: order::Durable = order::fence(published.flush());
    Some(())
}
