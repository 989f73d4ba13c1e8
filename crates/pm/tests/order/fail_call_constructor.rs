use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let _ = page.publish(0, 1, order::Durable::<()>::new())?;
    Some(())
}
