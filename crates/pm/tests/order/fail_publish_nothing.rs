use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let _ = order::publish(page.atomic_u64(0)?, 1, ());
    let _ = order::publish(page.atomic_u64(0)?, 1, None::<order::Durable>);
    let _ = order::publish(page.atomic_u64(0)?, 1, Vec::<order::Durable>::new());
    Some(())
}
