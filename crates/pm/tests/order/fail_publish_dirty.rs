use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let dirty = page.write(64, b"name")?;
    let published = page.publish(0, 1, dirty)?;
    let _: order::Durable = order::fence(published.flush());
    Some(())
}
