use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let name = order::fence(page.write(64, b"name")?.flush());
    let inode = page.write(128, b"inode")?.flush();
    let published = page.publish(0, 1, (name, inode))?;
    let _: order::Durable = order::fence(published.flush());
    Some(())
}
