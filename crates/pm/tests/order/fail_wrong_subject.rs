use arck_pm::{SharedBytes, order};

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    struct Inode;
    struct Dentry;
    fn commit(_: order::Durable<Dentry>) {}
    commit(order::fence(page.write(64, b"inode")?.describing::<Inode>().flush()));
    Some(())
}
