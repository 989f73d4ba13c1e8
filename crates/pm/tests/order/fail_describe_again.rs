use arck_pm::SharedBytes;

fn main() {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    struct Inode;
    struct Dentry;
    let inode = page.write(64, b"inode")?.describing::<Inode>();
    let _ = inode.describing::<Dentry>().flush();
    Some(())
}
