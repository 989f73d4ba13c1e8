//! What manual pages say besides the help: environment variables, files, and what else a page refers to.

/// A variable or a path, and what it is for.
pub type Row = (&'static str, &'static str);

/// The pool where none is named, for all that may be told one.
const POOL: Row = (
    "ARCK_POOL",
    "Directory of the pool where the command line names none.",
);
const DEFAULT_POOL: Row = (
    "/dev/shm/arck-$USER",
    "The pool where neither the command line nor ARCK_POOL names one. It is used only if it belongs to the user.",
);
const LOG: Row = (
    "ARCK_LOG",
    "What a controller writes to standard error: error, warn (the default), info, debug or trace; also by \
     module, as in arck_controller=info.",
);

const MEDIUM: Row = ("ARCK_MEDIUM", "As --medium.");
const NODES: Row = ("ARCK_NODES", "As --nodes.");

/// Paragraphs ahead of what the help says.
pub fn described(page: &str) -> &'static [&'static str] {
    match page {
        "arck" => &[
            "A pool is a directory of memory files: on a DAX file system (persistent memory), on tmpfs, or on any \
             other file system. A controller serves it (arck serve, or one that arck run starts), and programs \
             that arck run starts see its files under a path, /arck if no other is chosen, and work on them \
             without system calls.",
            "Whatever goes wrong is one line on standard error that says what and what to do, and exit status 1. \
             Wrong usage is exit status 2.",
        ],
        "arck-run" => &[
            "The command and all that it starts see the pool's files at the mount path; all other paths are the \
             host's. They are programs as they are, not built for it: a library is loaded into them \
             (LD_PRELOAD) that catches their calls. Programs into which no library can be loaded \
             (static ones, most of Go's, set-user-ID ones) find the files through the kernel where the pool is \
             mounted at that path: as root this command does so for itself, and arck mount for everybody. Where \
             it is not, they do not see the pool, and each is named before it is executed.",
        ],
        "arck-serve" => &[
            "It opens the pool, serves it to programs until it is told to end, and then folds all that they have \
             done and closes the pool. Where it was started by a service manager that wants to know \
             (NOTIFY_SOCKET), it says when the pool is served, and when it ends. Root serves a pool as the \
             user to whom its directory belongs.",
        ],
        _ => &[],
    }
}

/// Variables that a command reads.
pub fn environment(page: &str) -> &'static [Row] {
    match page {
        "arck-run" => &[
            POOL,
            (
                "ARCK_WAIT",
                "Seconds for which programs wait for a controller that is gone; 30 if it is not set.",
            ),
            ("ARCK_FS", "As --fs."),
            MEDIUM,
            NODES,
            ("ARCK_AT_ONCE", "As --at-once."),
            ("ARCK_DELEGATE", "As --delegate."),
            ("ARCK_STRICT", "1: as --strict."),
            ("ARCK_QUIET", "1: as --quiet."),
            (
                "ARCK_DISPATCH",
                "How system calls are caught that no function of libc makes by name: sud-exclusive, sud-inclusive \
                 or none. The best that the kernel offers, if it is not set; --report says which, and why.",
            ),
            (
                "ARCK_PATCH",
                "never: system calls inside libc are caught by signals alone, and not rewritten. Slower.",
            ),
            (
                "ARCK_PRELOAD",
                "The library that is loaded into programs, instead of the one that was installed with the \
                 command. It must belong to root or the user, and nobody else may be able to write it.",
            ),
            LOG,
            (
                "LD_PRELOAD",
                "What it names is loaded behind Arck's library.",
            ),
        ],
        "arck-serve" => &[
            POOL,
            MEDIUM,
            NODES,
            LOG,
            (
                "NOTIFY_SOCKET",
                "Where a service manager is told that the pool is served (see sd_notify(3)).",
            ),
        ],
        "arck-check" | "arck-export" | "arck-import" | "arck-mkfs" | "arck-violations" => &[POOL],
        _ => &[],
    }
}

/// Files that a command uses.
pub fn files(page: &str) -> &'static [Row] {
    match page {
        "arck-run" => &[
            (
                "/arck",
                "Where the command sees the pool, unless --mount names another path.",
            ),
            DEFAULT_POOL,
            (
                "../lib/arck/libarck_preload.so",
                "The library that is loaded into programs: there from the directory of the command, or beside it.",
            ),
        ],
        "arck-serve" => &[
            DEFAULT_POOL,
            (
                "arck@.service",
                "The systemd unit: arck@dev-shm-pool.service serves /dev/shm/pool (systemd-escape -p makes such \
                 a name). /etc/default/arck may set ARCK_SERVE_OPTIONS for all of them, such as --shared.",
            ),
        ],
        "arck-violations" => &[
            DEFAULT_POOL,
            (
                "POOL/violations.log, POOL/violations.log.old",
                "What was refused; one JSON object a line.",
            ),
            ("POOL/aside/", "Changes that were set aside."),
        ],
        "arck-check" => &[
            DEFAULT_POOL,
            (
                "POOL/repair-report",
                "What --repair has told, or was about to tell when it was cut off.",
            ),
        ],
        "arck-mkfs" | "arck-export" | "arck-import" => &[DEFAULT_POOL],
        _ => &[],
    }
}

/// Pages that one refers to.
pub fn beside(page: &str) -> &'static [&'static str] {
    match page {
        "arck-run" => &["arck-mkfs", "arck-serve", "arck-status"],
        "arck-serve" => &["arck-mkfs", "arck-run", "arck-status", "arck-violations"],
        "arck-mkfs" => &["arck-run", "arck-serve", "arck-check"],
        "arck-status" => &["arck-serve", "arck-violations"],
        "arck-violations" => &["arck-check", "arck-status"],
        "arck-check" => &["arck-mkfs", "arck-violations"],
        "arck-export" => &["arck-import"],
        "arck-import" => &["arck-export"],
        "arck-bench" => &["arck-run"],
        _ => &[],
    }
}
