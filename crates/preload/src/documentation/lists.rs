//! What is left to the kernel and to libc: the counterpart of the tables in `calls` and `symbols`.

/// System calls without a handler that can be given a path or a descriptor, and why that is
/// right.
pub const PASSED: &[(&str, &str)] = &[
    (
        "clone clone3 fork vfork",
        "no path; but the dispatch makes them itself, so that a child finds its descriptors and a \
         thread is armed (posix_spawn's child runs in its parent's memory until it does more than \
         lead to the next program; any other that would is made a forked one)",
    ),
    (
        "epoll_ctl epoll_wait",
        "a pool descriptor is a regular file to the kernel: always ready, EPERM for epoll_ctl",
    ),
    (
        "getsockopt listen setsockopt shutdown",
        "a pool descriptor is no socket: ENOTSOCK",
    ),
    (
        "fsconfig fsmount inotify_rm_watch mq_getsetattr mq_notify mq_timedreceive mq_timedsend \
         setns timerfd_gettime timerfd_settime",
        "they want a descriptor of another kind: EBADF or EINVAL for one of the pool, as for any \
         file",
    ),
    (
        "kcmp pidfd_send_signal process_madvise process_mrelease waitid",
        "descriptors of processes",
    ),
    (
        "bpf fanotify_init finit_module kexec_file_load landlock_add_rule \
         landlock_restrict_self open_by_handle_at perf_event_open quotactl quotactl_fd",
        "for the system's administration: a pool descriptor is EBADF, a pool path not found",
    ),
    (
        "mq_open mq_unlink",
        "the names of message queues are no paths",
    ),
];

/// System calls that can be given neither a path nor a descriptor of a file, or that no kernel
/// implements any more.
pub const WITHOUT_FILES: &str = "\
    _sysctl add_key adjtimex afs_syscall alarm arch_prctl brk capget clock_adjtime \
    clock_getres clock_gettime clock_nanosleep clock_settime create_module delete_module \
    epoll_ctl_old epoll_wait_old exit fsopen futex \
    futex_requeue futex_wait futex_waitv futex_wake get_kernel_syms get_mempolicy get_robust_list \
    get_thread_area getcpu getegid geteuid getgid getgroups getitimer getpgid getpgrp getpid \
    getpmsg getppid getpriority getrandom getresgid getresuid getrlimit getrusage getsid gettid \
    gettimeofday getuid init_module ioperm iopl ioprio_get ioprio_set kexec_load keyctl kill \
    landlock_create_ruleset listmount lookup_dcookie lsm_get_self_attr lsm_list_modules \
    lsm_set_self_attr map_shadow_stack mbind membarrier memfd_secret migrate_pages \
    mincore mlock mlock2 modify_ldt move_pages mseal msgctl msgget msgrcv msgsnd munlock \
    nanosleep nfsservctl pause personality pkey_alloc pkey_free \
    pkey_mprotect prctl process_vm_readv process_vm_writev ptrace putpmsg query_module \
    reboot remap_file_pages request_key restart_syscall rseq rt_sigpending rt_sigqueueinfo \
    rt_sigreturn rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min \
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval \
    sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp security \
    semctl semget semop semtimedop set_mempolicy set_mempolicy_home_node set_robust_list \
    set_thread_area set_tid_address setdomainname setfsgid setfsuid sethostname \
    setitimer setpgid setpriority setsid \
    settimeofday shmat shmctl shmdt shmget statmount sysfs \
    sysinfo syslog tgkill time timer_create timer_delete timer_getoverrun timer_gettime \
    timer_settime times tkill tuxcall uname uretprobe userfaultfd \
    ustat vhangup vserver wait4";

/// Functions of libc that take a path or a descriptor, or make such a system call, and that this
/// library does not replace.
pub const LEFT_TO_LIBC: &[(&str, &str)] = &[
    (
        "aio_cancel aio_cancel64 backtrace_symbols_fd bindtextdomain canonicalize_file_name \
         catopen dprintf fdopen fdopendir fopen fopen64 fpathconf freopen freopen64 ftok ftw ftw64 \
         getdirentries getdirentries64 glob glob64 herror isatty llseek mkdtemp mkostemp mkostemp64 \
         mkostemps mkostemps64 mkstemp mkstemp64 mkstemps mkstemps64 mktemp nftw nftw64 opendir \
         pathconf posix_madvise posix_spawn posix_spawn_file_actions_addchdir_np \
         posix_spawn_file_actions_addclose posix_spawn_file_actions_adddup2 \
         posix_spawn_file_actions_addfchdir_np posix_spawn_file_actions_addopen posix_spawnp \
         realpath scandir scandir64 scandirat scandirat64 setmntent tcdrain tcflow tcflush \
         tcgetattr tcgetpgrp tcgetsid tcsendbreak tcsetattr tcsetpgrp tempnam updwtmp updwtmpx \
         utmpname utmpxname vdprintf wordexp",
        "libc makes system calls in them that the dispatch catches and serves; without dispatch \
         (ARCK_DISPATCH=none) they do not see the pool",
    ),
    (
        "dlmopen",
        "as dlopen, but by the loader alone: does not see the pool",
    ),
    (
        "accept accept4 bindresvport epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd_read \
         eventfd_write forkpty getipv4sourcefilter getpeername getsockname getsockopt \
         getsourcefilter grantpt inotify_rm_watch isfdtype listen login_tty open_by_handle_at \
         openpty pidfd_getfd pidfd_send_signal process_madvise process_mrelease ptsname ptsname_r \
         recv recvfrom send sendto setipv4sourcefilter setns \
         setsockopt setsourcefilter shutdown signalfd sockatmark timerfd_gettime timerfd_settime \
         ttyname ttyname_r unlockpt __poll poll ppoll __select pselect select __sigsuspend \
         sigsuspend  mq_close \
         mq_setattr mq_notify mq_timedreceive mq_timedsend __send clone __clone _Fork \
         posix_spawn_file_actions_addtcsetpgrp_np",
        "descriptors of another kind, terminals, or none; the system calls in them are answered \
         as above",
    ),
    (
        "acct fanotify_mark fsconfig fsmount fspick mount mount_setattr move_mount open_tree \
         pivot_root quotactl revoke swapoff swapon umount umount2 uselib",
        "one system call each, seen and answered as above",
    ),
    (
        "dlsym dlvsym getaddrinfo getdomainname getenv getfsfile getfsspec getgrnam getgrnam_r \
         gethostbyname gethostbyname2 gethostbyname2_r gethostbyname_r gethostname getlogin_r \
         getnetbyname getnetbyname_r getprotobyname getprotobyname_r getpwnam getpwnam_r \
         getrpcbyname getrpcbyname_r getservbyname getservbyname_r getsgnam getsgnam_r getspnam \
         getspnam_r getttynam glob_pattern_p memfd_create mq_open mq_unlink pthread_setname_np \
         re_compile_pattern regcomp rexec rexec_af secure_getenv sem_open sem_unlink \
         setdomainname setenv sethostname setlogin shm_open shm_unlink unsetenv",
        "names of other things than files of the program",
    ),
];

/// Words of a list.
pub fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split_whitespace()
}
