use arck_pm::order::{self, Durable};
use arck_pm::SharedBytes;
use std::sync::atomic::{AtomicU64, Ordering};

struct Dentry;

fn commit(page: SharedBytes<'_>, proof: Durable<Dentry>) -> Option<()> {
    let published = page.publish(0, 1, proof)?;
    let _: Durable = order::fence(published.flush());
    Some(())
}

fn main() {
    let memory: Vec<AtomicU64> = (0..512).map(|_| AtomicU64::new(0)).collect();
    let page = SharedBytes::from_words(&memory);
    let name = page.write(64, b"name").unwrap().describing::<Dentry>().flush();
    let inode = page.stream(128, &[7; 64]).unwrap();
    let many: Vec<_> = (4..8).map(|line| page.write_u64(line * 64, 9).unwrap().flush()).collect();
    let (name, inode, many) = order::fence((name, inode, many));
    // A durable proof may go to another thread; a flushed one may not.
    std::thread::scope(|scope| scope.spawn(move || commit(page, name).unwrap()).join().unwrap());
    let proof = (inode, Durable::all(many).unwrap());
    let published = order::publish_exchange(&memory[1], 0, 2, proof).ok().unwrap();
    let durable = order::fence([published.flush()]);
    let flushed = order::publish_streaming(&memory[2], 3, durable);
    let _: Durable = order::fence(flushed);
    assert_eq!(memory[0].load(Ordering::Acquire), 1);
    assert_eq!(memory[1].load(Ordering::Acquire), 2);
}
