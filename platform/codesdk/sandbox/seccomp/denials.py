"""System calls that are deliberately not granted, with reasons. The self-check tries each in a sandbox.

This isn't the whole list of denied calls: everything outside `grants` is denied.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Denial:
    """A family of system calls that is denied although some tool might use it."""

    family: str
    reason: str
    names: tuple[str, ...]


DENIALS: tuple[Denial, ...] = (
    Denial(
        "keys",
        "key rings are not divided by containers: keys of other sandboxes and of the host, and a long line of kernel defects",
        ("add_key", "keyctl", "request_key"),
    ),
    Denial(
        "programs-in-kernel",
        "programs in the kernel, and its performance counters: side channels and defects", ("bpf", "perf_event_open")),
    Denial(
        "userfaultfd",
        "lets a page fault wait at will, the favourite tool to win races in the kernel", ("userfaultfd",)),
    Denial(
        "other-processes",
        "execs of one sandbox share a uid: with these one reads secrets of another, its memory and descriptors. Debuggers,"
        " strace and LeakSanitizer do not work in a sandbox; that is the price",
        ("kcmp", "pidfd_getfd", "process_madvise", "process_vm_readv", "process_vm_writev", "ptrace"),
    ),
    Denial(
        "mounts",
        "mounts: what a path means is decided when the sandbox is made",
        (
            "chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount", "open_tree",
            "pivot_root", "umount2",
        ),
    ),
    Denial(
        "namespaces",
        "other namespaces: a user namespace gives capabilities over kernel parts that trust them. Programs that bring their"
        " own sandbox (browsers, bubblewrap) need it switched off",
        ("setns", "unshare"),
    ),
    Denial(
        "io-uring",
        "rings of requests run past a filter of system calls, and have their own line of defects", ("io_uring_enter", "io_uring_register", "io_uring_setup")),
    Denial(
        "file-handles",
        "files by number instead of by path leave mounts behind", ("name_to_handle_at", "open_by_handle_at")),
    Denial(
        "vmsplice",
        "hands pages of a process to the kernel in place; without use in tools, with a history", ("vmsplice",)),
    Denial(
        "machine",
        "another kernel, modules, power, swap, accounting, ports",
        (
            "acct", "delete_module", "finit_module", "init_module", "ioperm", "iopl", "kexec_file_load", "kexec_load",
            "quotactl", "reboot", "swapoff", "swapon", "syslog", "vhangup",
        ),
    ),
    Denial(
        "clock-and-names",
        "the machine's clock and names", ("adjtimex", "clock_adjtime", "clock_settime", "setdomainname", "sethostname", "settimeofday")),
    Denial(
        "memory-placement",
        "placing memory on nodes affects others; numeric libraries ask, and go on without",
        ("get_mempolicy", "mbind", "migrate_pages", "move_pages", "set_mempolicy"),
    ),
    Denial(
        "segments",
        "16-bit segments: only Windows emulation needs them", ("modify_ldt",)),
    Denial(
        "fanotify",
        "watching whole file systems", ("fanotify_init", "fanotify_mark")),
    Denial(
        "aio",
        "asynchronous input and output of the old kind: databases fall back to threads", ("io_cancel", "io_destroy", "io_getevents", "io_setup", "io_submit")),
    Denial(
        "secret-memory",
        "memory that not even the kernel can look into", ("memfd_secret",)),
)  # fmt: skip
