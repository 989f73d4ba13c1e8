use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let durable = order::Durable::<()> { subject: std::marker::PhantomData };
    let _ = page.publish(0, 1, durable)?;
    Some(())
}
