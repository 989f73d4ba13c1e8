use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let flushed = page.write(64, b"name")?.flush();
    let (first, second) = order::fence((flushed, flushed));
    let _ = page.publish(0, 1, (first, second))?;
    Some(())
}
