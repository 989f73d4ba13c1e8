use arck_pm::SharedBytes;

fn main() {}

fn to_another_thread(_: impl Send) {}

fn attempt(page: SharedBytes<'_>) -> Option<()> {
    let flushed = page.write(64, b"name")?.flush();
    to_another_thread(flushed);
    Some(())
}
