# program: cargo build
# needs: cargo=rustup cc=build-essential
# version: cargo --version | awk '{ print $2 }'
# compares: output of the built programs and tests, what is built again after a change, names of what is in the target directory
# volatile: target/ .cargo
cd "$1"; umask 022
export CARGO_HOME=$SCRATCH/cargo CARGO_TARGET_DIR=$1/target CARGO_NET_OFFLINE=true CARGO_TERM_QUIET=true CARGO_BUILD_JOBS=2
mkdir -p small/src/bin small/tests small/part/src; cd small
cat >Cargo.toml <<'END'
[package]
name = "small"
version = "0.1.0"
edition = "2021"
[workspace]
members = ["part"]
[dependencies]
part = { path = "part" }
END
printf '[package]\nname = "part"\nversion = "0.1.0"\nedition = "2021"\nbuild = "build.rs"\n' >part/Cargo.toml
cat >part/build.rs <<'END'
fn main() {
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR").unwrap()).join("table.rs");
    let rows: String = (0..200).map(|i| format!("{},", i * i)).collect();
    std::fs::write(out, format!("pub static TABLE: [u32; 200] = [{rows}];")).unwrap();
    println!("cargo:rerun-if-changed=build.rs");
}
END
echo 'include!(concat!(env!("OUT_DIR"), "/table.rs")); pub fn sum() -> u32 { TABLE.iter().sum() } #[test] fn sums() { assert_eq!(sum(), 2_646_700) }' >part/src/lib.rs
for i in 1 2 3; do echo "pub fn value() -> u32 { $i + part::sum() }" >src/m$i.rs; done
echo 'pub mod m1; pub mod m2; pub mod m3; #[test] fn all() { assert!(m1::value() < m2::value()) }' >src/lib.rs
echo 'fn main() { println!("{}", small::m1::value() + small::m2::value() + small::m3::value()) }' >src/main.rs
echo 'fn main() { std::fs::write(std::env::args().nth(1).unwrap(), "written").unwrap() }' >src/bin/other.rs
echo '#[test] fn outside() { let f = std::env::temp_dir().join("t"); std::fs::write(&f, "x").unwrap(); assert_eq!(std::fs::read(f).unwrap(), b"x") }' >tests/it.rs
cargo build; "$CARGO_TARGET_DIR/debug/small"; "$CARGO_TARGET_DIR/debug/other" "$1/written"; cat "$1/written"; echo
CARGO_TERM_QUIET=false cargo build 2>&1 | grep -c Compiling || echo nothing to do
sleep 0.01; echo 'pub fn value() -> u32 { 50 + part::sum() }' >src/m2.rs; CARGO_TERM_QUIET=false cargo build 2>&1 | grep Compiling | sed 's/ (.*//'; cargo run --bin small
mkdir "$1/tmp"; TMPDIR=$1/tmp cargo test --lib --test it --workspace 2>&1 | grep '^test [^r]' | sort; ls "$1/tmp"
sleep 0.01; echo 'fn broken(' >>src/m3.rs; cargo build 2>/dev/null || echo "status $?"; sed -i '$d' src/m3.rs; cargo build --release; "$CARGO_TARGET_DIR/release/small"
cargo package --allow-dirty --list; cargo metadata --format-version 1 --offline | wc -l; cat Cargo.lock
find "$CARGO_TARGET_DIR" -type f -name '*.rlib' | sed 's,.*/,,' | sort; # These names are random.
rm -r "$CARGO_TARGET_DIR"/*/incremental 2>/dev/null; find "$CARGO_TARGET_DIR" -name '*.rcgu.o' -delete
