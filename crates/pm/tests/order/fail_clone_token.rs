use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let durable = order::fence(page.write(64, b"name")?.flush());
    let again = durable.clone();
    let _ = (page.publish(0, 1, durable)?, page.publish(8, 1, again)?);
    Some(())
}
