//! What must not compile, and what the tokens cost.

use arck_pm::order::{Durable, Flushed};

#[test]
fn unordered_publishing_does_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/order/ordered.rs");
    cases.compile_fail("tests/order/fail_*.rs");
}

#[test]
fn tokens_have_no_size() {
    struct Dentry;
    assert_eq!(size_of::<Flushed<Dentry>>(), 0);
    assert_eq!(size_of::<Durable<Dentry>>(), 0);
    assert_eq!(size_of::<(Durable, Durable<Dentry>)>(), 0);
}
