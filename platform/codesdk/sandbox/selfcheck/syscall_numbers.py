"""Numbers of the deliberately denied system calls, for the probes that try them (linux/unistd.h)."""

from __future__ import annotations

NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "acct": 163, "add_key": 248, "adjtimex": 159, "bpf": 321, "chroot": 161, "clock_adjtime": 305,
        "clock_settime": 227, "delete_module": 176, "fanotify_init": 300, "fanotify_mark": 301,
        "finit_module": 313, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433, "get_mempolicy": 239,
        "init_module": 175, "io_cancel": 210, "io_destroy": 207, "io_getevents": 208, "io_setup": 206,
        "io_submit": 209, "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425, "ioperm": 173,
        "iopl": 172, "kcmp": 312, "kexec_file_load": 320, "kexec_load": 246, "keyctl": 250, "mbind": 237,
        "memfd_secret": 447, "migrate_pages": 256, "modify_ldt": 154, "mount": 165, "mount_setattr": 442,
        "move_mount": 429, "move_pages": 279, "name_to_handle_at": 303, "open_by_handle_at": 304, "open_tree": 428,
        "perf_event_open": 298, "pidfd_getfd": 438, "pivot_root": 155, "process_madvise": 440,
        "process_vm_readv": 310, "process_vm_writev": 311, "ptrace": 101, "quotactl": 179, "reboot": 169,
        "request_key": 249, "set_mempolicy": 238, "setdomainname": 171, "sethostname": 170, "setns": 308,
        "settimeofday": 164, "swapoff": 168, "swapon": 167, "syslog": 103, "umount2": 166, "unshare": 272,
        "userfaultfd": 323, "vhangup": 153, "vmsplice": 278,
    },
    "aarch64": {
        "acct": 89, "add_key": 217, "adjtimex": 171, "bpf": 280, "chroot": 51, "clock_adjtime": 266,
        "clock_settime": 112, "delete_module": 106, "fanotify_init": 262, "fanotify_mark": 263,
        "finit_module": 273, "fsconfig": 431, "fsmount": 432, "fsopen": 430, "fspick": 433, "get_mempolicy": 236,
        "init_module": 105, "io_cancel": 3, "io_destroy": 1, "io_getevents": 4, "io_setup": 0, "io_submit": 2,
        "io_uring_enter": 426, "io_uring_register": 427, "io_uring_setup": 425, "kcmp": 272,
        "kexec_file_load": 294, "kexec_load": 104, "keyctl": 219, "mbind": 235, "memfd_secret": 447,
        "migrate_pages": 238, "mount": 40, "mount_setattr": 442, "move_mount": 429, "move_pages": 239,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "open_tree": 428, "perf_event_open": 241,
        "pidfd_getfd": 438, "pivot_root": 41, "process_madvise": 440, "process_vm_readv": 270,
        "process_vm_writev": 271, "ptrace": 117, "quotactl": 60, "reboot": 142, "request_key": 218,
        "set_mempolicy": 237, "setdomainname": 162, "sethostname": 161, "setns": 268, "settimeofday": 170,
        "swapoff": 225, "swapon": 224, "syslog": 116, "umount2": 39, "unshare": 97, "userfaultfd": 282,
        "vhangup": 58, "vmsplice": 75,
    },
}  # fmt: skip
"""By architecture; a table lacks the calls that its architecture doesn't have."""
