use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let streamed = page.stream(64, b"name")?;
    let published = page.publish(0, 1, streamed)?;
    let _: order::Durable = order::fence(published.flush());
    Some(())
}
