"""The system calls that tools and the runner may make, with reasons. All others fail with EPERM.

Derived from what Python, Node, git, compilers, package managers, test runners and databases under test use.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Argument:
    """A condition on one argument: `(value & mask) == equals`, or `value == equals` without a mask.

    The kernel reads an int from the lower half of the register, but the filter compares all of it. A plain comparison
    refuses any value with a set upper half, and a mask covers the lower half only. Both err on the strict side.
    """

    index: int
    equals: int
    mask: int | None = None


@dataclass(frozen=True)
class Grant:
    """System calls that are allowed; with conditions, only if all of them hold."""

    reason: str
    names: tuple[str, ...]
    where: tuple[Argument, ...] = ()


def _split(words: str) -> tuple[str, ...]:
    return tuple(sorted(words.split()))


NEW_NAMESPACES = 0x7E020000
"""All CLONE_NEW* flags of `clone`."""
FILE_TYPE = 0o170000
FIFO, REGULAR, SOCKET = 0o010000, 0o100000, 0o140000
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE = 0
SOCK_TYPE = 0xF
SOCK_STREAM, SOCK_SEQPACKET = 1, 5
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, 32-bit uname, 2.6 uname, both, and "query only". None weakens address space randomisation."""

NAMED_UNIX_SOCKETS = (Grant("sockets between own processes", _split("socket"), (Argument(0, AF_UNIX),)),)
"""Sockets through which processes can connect by a path in the file system."""
SOCKET_PAIRS = Grant("pairs of sockets between own processes", _split("socketpair"), (Argument(0, AF_UNIX),))
CONNECTED_SOCKET_PAIRS = tuple(
    Grant(SOCKET_PAIRS.reason, SOCKET_PAIRS.names, (*SOCKET_PAIRS.where, Argument(1, kind, SOCK_TYPE)))
    for kind in (SOCK_STREAM, SOCK_SEQPACKET)
)
"""Pairs that stay connected. A datagram socket could be reconnected to a path in the file system."""
GRANTS: tuple[Grant, ...] = (
    Grant(
        "memory of a process: allocators, loaders, just-in-time compilers, shared buffers between own processes",
        _split(
            "brk mmap mmap2 munmap mprotect mremap madvise mincore msync mlock mlock2 munlock mlockall munlockall"
            " memfd_create membarrier pkey_alloc pkey_free pkey_mprotect map_shadow_stack"
        ),
    ),
    Grant(
        "open, read and write files; what may be opened is decided by rights and mounts, not here",
        _split(
            "open openat openat2 creat close close_range read write readv writev pread64 pwrite64 preadv pwritev preadv2"
            " pwritev2 lseek _llseek dup dup2 dup3 fcntl fcntl64 flock ftruncate ftruncate64 truncate truncate64 fallocate"
            " fadvise64 fadvise64_64 readahead fsync fdatasync sync syncfs sync_file_range pipe pipe2"
        ),
    ),
    Grant(
        "names, directories, links, modes and times of files: git, tar, package managers",
        _split(
            "stat stat64 lstat lstat64 fstat fstat64 newfstatat fstatat64 statx access faccessat faccessat2 readlink"
            " readlinkat getdents getdents64 getcwd chdir fchdir mkdir mkdirat rmdir unlink unlinkat rename renameat"
            " renameat2 link linkat symlink symlinkat chmod fchmod fchmodat fchmodat2 chown chown32 fchown fchown32 fchownat"
            " lchown lchown32 umask utime utimes utimensat utimensat_time64 futimesat statfs statfs64 fstatfs fstatfs64"
        ),
    ),
    Grant(
        "extended attributes: `cp -a`, tar and git read and copy them",
        _split(
            "getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr removexattr"
            " lremovexattr fremovexattr"
        ),
    ),
    Grant(
        "copy between descriptors inside the kernel: shutil, cp, web servers under test",
        _split("sendfile sendfile64 copy_file_range splice tee"),
    ),
    Grant(
        "named pipes, empty files and sockets in the file system; never devices: one condition for each kind",
        _split("mknod"),
        (Argument(1, FIFO, FILE_TYPE),),
    ),
    Grant("likewise, plain files", _split("mknod"), (Argument(1, REGULAR, FILE_TYPE),)),
    Grant("likewise, plain files by mode 0", _split("mknod"), (Argument(1, 0, FILE_TYPE),)),
    Grant("likewise, sockets", _split("mknod"), (Argument(1, SOCKET, FILE_TYPE),)),
    Grant("likewise, pipes (mkfifo)", _split("mknodat"), (Argument(2, FIFO, FILE_TYPE),)),
    Grant("likewise, plain files", _split("mknodat"), (Argument(2, REGULAR, FILE_TYPE),)),
    Grant("likewise, plain files by mode 0", _split("mknodat"), (Argument(2, 0, FILE_TYPE),)),
    Grant("likewise, sockets", _split("mknodat"), (Argument(2, SOCKET, FILE_TYPE),)),
    Grant(
        "watching files: test runners and bundlers in watch mode",
        _split("inotify_init inotify_init1 inotify_add_watch inotify_rm_watch"),
    ),
    Grant(
        "waiting for descriptors and for time: every event loop",
        _split(
            "poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64 epoll_create epoll_create1 epoll_ctl"
            " epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4"
            " timerfd_create timerfd_settime timerfd_settime64 timerfd_gettime timerfd_gettime64 nanosleep clock_nanosleep"
            " clock_nanosleep_time64 pause alarm setitimer getitimer timer_create timer_settime timer_settime64"
            " timer_gettime timer_gettime64 timer_getoverrun timer_delete"
        ),
    ),
    Grant(
        "reading clocks and identity of the machine; setting them is in no group",
        _split(
            "clock_gettime clock_gettime64 clock_getres clock_getres_time64 gettimeofday time times uname sysinfo getcpu"
            " getrandom"
        ),
    ),
    Grant(
        "terminals, descriptors' modes, queue lengths. All requests: to refuse one (TIOCSTI) by its number would need a"
        " comparison that a set upper half evades; a sandbox's only terminal is the tool's own",
        _split("ioctl"),
    ),
    Grant(
        "starting programs and ending", _split("execve execveat fork vfork exit exit_group wait4 waitid waitpid prctl")
    ),
    Grant(
        "processes and threads, in the namespaces of their parent only: no CLONE_NEW* flag",
        _split("clone"),
        (Argument(0, 0, NEW_NAMESPACES),),
    ),
    Grant(
        "threads' own bookkeeping, locks between them",
        _split(
            "futex futex_time64 futex_waitv futex_wake futex_wait futex_requeue set_robust_list get_robust_list"
            " set_tid_address rseq arch_prctl set_thread_area get_thread_area gettid restart_syscall"
        ),
    ),
    Grant(
        "signals, also to own children by descriptor (Python's subprocess and asyncio)",
        _split(
            "kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo rt_sigreturn"
            " rt_sigsuspend rt_sigtimedwait rt_sigtimedwait_time64 sigaltstack sigreturn pidfd_open pidfd_send_signal"
        ),
    ),
    Grant(
        "who am I, which group and session is this",
        _split(
            "getpid getppid getuid getuid32 geteuid geteuid32 getgid getgid32 getegid getegid32 getresuid getresuid32"
            " getresgid getresgid32 getgroups getgroups32 getpgid getpgrp getsid setpgid setsid getpriority getrusage"
        ),
    ),
    Grant(
        "changing users: the runner becomes the tool. A tool has no capability, so for it these can only repeat what it is",
        _split(
            "setuid setuid32 setgid setgid32 setreuid setreuid32 setregid setregid32 setresuid setresuid32 setresgid"
            " setresgid32 setgroups setgroups32 capget capset"
        ),
    ),
    Grant(
        "own limits and place in the queue; raising them needs a capability that nobody here has",
        _split(
            "getrlimit ugetrlimit setrlimit prlimit64 setpriority ioprio_get ioprio_set sched_yield sched_getaffinity"
            " sched_setaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler sched_getattr"
            " sched_setattr sched_get_priority_max sched_get_priority_min sched_rr_get_interval"
            " sched_rr_get_interval_time64"
        ),
    ),
    *NAMED_UNIX_SOCKETS,
    Grant(
        "servers and clients on the sandbox's loopback, which is all of its network",
        _split("socket"),
        (Argument(0, AF_INET),),
    ),
    Grant("likewise over IPv6", _split("socket"), (Argument(0, AF_INET6),)),
    Grant(
        "asking for own interfaces and routes, as getaddrinfo and getifaddrs do; no other netlink protocol",
        _split("socket"),
        (Argument(0, AF_NETLINK), Argument(2, NETLINK_ROUTE)),
    ),
    SOCKET_PAIRS,
    Grant(
        "using a socket that one has",
        _split(
            "accept accept4 bind connect listen getpeername getsockname getsockopt setsockopt recv recvfrom recvmmsg"
            " recvmmsg_time64 recvmsg send sendmmsg sendmsg sendto shutdown"
        ),
    ),
    Grant(
        "System V and POSIX shared memory, semaphores and queues, in an IPC namespace of the sandbox's own: PostgreSQL and"
        " multiprocessing under test. What an exec leaves there counts as memory until the sandbox ends",
        _split(
            "shmget shmat shmdt shmctl semget semop semtimedop semtimedop_time64 semctl msgget msgsnd msgrcv msgctl mq_open"
            " mq_unlink mq_timedsend mq_timedsend_time64 mq_timedreceive mq_timedreceive_time64 mq_notify mq_getsetattr"
        ),
    ),
    Grant(
        "restricting oneself further: `file`, ssh and language runtimes do",
        _split("seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self"),
    ),
    *(
        Grant(
            "the ordinary personality, or asking which it is; none that weakens address randomisation",
            ("personality",),
            (Argument(0, value),),
        )
        for value in PERSONALITIES
    ),
)

ENOSYS_CALLS = ("clone3",)
"""Fails with ENOSYS: its flags are in memory, which a filter can't read, and on ENOSYS the C library uses `clone`.
EPERM would break threads."""
