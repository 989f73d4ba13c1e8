//! The library's name for who links with it, and that it stays loaded: forks and the ends of threads come back to it.

/// Goes up with each change that a program which was built before would not survive.
const SONAME: &str = "libarck.so.0";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
