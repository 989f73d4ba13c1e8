# The commands to know: `make demo`, `make test` and `make fuzz`. They install what they need where they
# may, and say what is missing where not.

PREFIX ?= /usr/local
CARGO := scripts/cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
# For each target of `make fuzz`.
SECONDS ?= 30

# Virtual machines for `make test-vm`; SEED= says which.
ROUNDS ?= 16
# Of each kind for `make storms`.
COUNT ?= 1000

.PHONY: all build demo test torture storms test-threads test-vm test-apps test-suites model fuzz bench lint doc prepare install uninstall deb clean

all: build

prepare:
	@scripts/prepare

# The `arck` command, the library that it preloads, which it finds beside itself, and the one for C.
BUILD = $(CARGO) build --release --locked -p arck-cli -p arck-preload -p arck-c

build:
	scripts/prepare build
	$(BUILD)

# Real programs on a pool in memory, everything checked, with a table of times.
demo: prepare
	$(BUILD)
	ARCK=$(TARGET)/release/arck demo/demo

test: prepare
	scripts/test

# Workloads of three users in several groups, killed, stopped and limited at random instants, as root: for
# `SECONDS=` (default: 600), by `SEED=`. It is part of `make test`, shorter.
torture: prepare
	$(CARGO) build --workspace --locked
	ARCK_TORTURE_SECONDS=$(if $(filter file,$(origin SECONDS)),600,$(SECONDS)) ARCK_TORTURE_SEED=$(or $(SEED),1) \
		$(CARGO) test --workspace --locked --test torture

# 100,000 creates in one directory on a busy machine, COUNT= times, and ten times as many programs that join and
# leave a group, a tenth of them with little of something, as root. `make test` has a few of each.
storms: prepare
	$(CARGO) build --release --workspace --locked
	ARCK_STORMS=$(COUNT) $(CARGO) test --release --workspace --locked --test creates -- --nocapture
	ARCK_JOINS=$$(($(COUNT) * 10)) ARCK_JOINS_SEED=$(or $(SEED),1) \
		$(CARGO) test --release --workspace --locked --test cli -- --nocapture leaving

# ArckFS's threads under ThreadSanitizer; needs a nightly compiler with its sources.
test-threads: prepare
	scripts/threads

# Persistent memory, emulated with its whole machine, whose power is cut at random instants.
test-vm: prepare
	scripts/test-vm $(ROUNDS) $(SEED)

# Whole programs (git, make, PostgreSQL, ...), unmodified, beside tmpfs; `scripts/test-apps git` for one. Then what
# `make install` and `make deb` make, in a clean root, and the first of the suites.
test-apps: prepare
	scripts/prepare apps
	scripts/test-apps
	scripts/test-install
	$(BUILD)
	scripts/test-suites pjdfstest fsx

# Test suites that others wrote (pjdfstest, fsx, ...) on a pool, both ways in, beside tmpfs, as root.
test-suites: prepare
	scripts/prepare suites
	$(BUILD)
	scripts/test-suites

# A million schedules of the ownership protocol, seven times those of `make test`.
model: prepare
	scripts/model 140000

# The verifier and all decoders under a coverage-guided fuzzer; `make fuzz SECONDS=600` for longer.
fuzz: prepare
	scripts/fuzz $(SECONDS)

# Paired measurements beside tmpfs: what users do (`arck-bench report`, with plots in target/bench.html), and then
# single facts; `arck-bench --help` names the others. `make bench QUICK=1` is a look at the first in minutes.
bench: prepare
	scripts/leveldb-bench
	$(BUILD)
	$(CARGO) run --release --locked -p arck-bench -- report $(if $(QUICK),--quick) \
		--html $(TARGET)/bench.html --json $(TARGET)/bench.json
	$(if $(QUICK),,for part in count beside start floor; do \
		$(CARGO) run --release --locked -p arck-bench -- $$part || exit; done)

lint: prepare
	$(CARGO) fmt --all --check
	$(CARGO) fmt --manifest-path crates/fuzz/libfuzzer/Cargo.toml --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --workspace --test programs --locked -- -D warnings
	shellcheck demo/demo demo/redis demo/tree $(filter-out scripts/circles,$(wildcard scripts/*)) packaging/postinst packaging/prerm \
		packaging/postrm .ci/run
	scripts/circles

doc: prepare
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# What `make build` has built: as root there may be no Rust to build it with. Without symbols; manual pages,
# completions for shells and a systemd unit come along. `make uninstall` removes what that has put there.
install:
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) TARGET=$(TARGET) scripts/install

uninstall:
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) TARGET=$(TARGET) scripts/install --remove

# A Debian package of it.
deb: build
	@TARGET=$(TARGET) scripts/deb

clean:
	$(CARGO) clean
