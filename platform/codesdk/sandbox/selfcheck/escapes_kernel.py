"""Escape probes: system calls, privileges and namespaces."""

from __future__ import annotations

import json

from codesdk.sandbox.port import ExitKind
from codesdk.sandbox.seccomp.denials import DENIALS, Denial
from codesdk.sandbox.selfcheck.context import ProbeContext
from codesdk.sandbox.selfcheck.escape_attempts import PRELUDE, refused_with
from codesdk.sandbox.selfcheck.expectations import ProbeFailed, expect, expect_equal, expect_exit
from codesdk.sandbox.selfcheck.probe import Check, Probe

BOUNDING = 1 << 0 | 1 << 5 | 1 << 6 | 1 << 7
"""CHOWN, KILL, SETGID, SETUID: the runner's capabilities, in a tool's bounding set but impossible to gain."""

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
"""Numbers of the denied calls by architecture (linux/unistd.h); a table lacks those that its architecture doesn't have."""
_DENIED = """
import json
numbers = json.loads(NUMBERS).get(os.uname().machine, {})
print("machine", len(numbers) > 0)
for name, number in sorted(numbers.items()):
    # In a child: where the call is let through it may do anything.
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        # Zeroes, so that the kernel itself would stumble over them (EFAULT, EBADF, EINVAL) and not do harm. For
        # userfaultfd the flag that users may set.
        first = 1 if name == "userfaultfd" else 0
        result = libc.syscall(ctypes.c_long(number), ctypes.c_long(first), *[ctypes.c_long(0)] * 5)
        code = ctypes.get_errno() if result == -1 else 0
        os.write(w, (errno.errorcode.get(code, str(code)) if result == -1 else "DONE").encode()); os._exit(0)
    os.close(w); answer = os.read(r, 100).decode() or "KILLED"; os.close(r); os.waitpid(pid, 0)
    print(name, answer)
"""


def _denied(denial: Denial) -> Check:
    numbers = {
        machine: {name: table[name] for name in denial.names if name in table} for machine, table in NUMBERS.items()
    }
    program = PRELUDE + f"NUMBERS = {json.dumps(json.dumps(numbers))}\n" + _DENIED

    def check(context: ProbeContext) -> None:
        lines = expect_exit(context.python(program)).stdout.decode().splitlines()
        if lines == ["machine False"]:
            return  # this architecture has none of these calls
        expect_equal("first line", lines[:1], ["machine True"])
        # EPERM is the filter's error. For these arguments the kernel itself only returns it for calls that check a
        # capability first; ENOSYS means that the kernel was built without the call.
        let_in = [line for line in lines[1:] if line.split()[-1] not in ("EPERM", "ENOSYS")]
        expect(not let_in, f"the kernel was reached: {', '.join(let_in)}")

    return check


def _status(context: ProbeContext) -> dict[str, str]:
    lines = expect_exit(context.run("cat", "/proc/self/status")).stdout.decode().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _capabilities(context: ProbeContext) -> None:
    status = _status(context)
    shown = {name: int(value, 16) for name, value in status.items() if name.startswith("Cap")}
    for name in {"CapInh", "CapPrm", "CapEff", *shown} - {"CapBnd"}:  # CapAmb: gVisor has none
        expect_equal(name, shown.get(name), 0)
    beyond = int(status.get("CapBnd", "-1"), 16) & ~BOUNDING
    expect(beyond == 0, f"the bounding set holds more than the runner needs: {beyond:#x}")


def _no_new_privileges(context: ProbeContext) -> None:
    expect_equal("NoNewPrivs", _status(context).get("NoNewPrivs"), "1")


def _filtered(context: ProbeContext) -> None:
    expect_equal("Seccomp", _status(context).get("Seccomp"), "2")


_NAMESPACES = """
attempt("unshare a user namespace", lambda: called(libc.unshare(0x10000000)))
attempt("unshare a mount namespace", lambda: called(libc.unshare(0x20000)))
attempt("unshare a network namespace", lambda: called(libc.unshare(0x40000000)))
def clone_into_user_namespace():
    number = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
    if called(libc.syscall(ctypes.c_long(number), ctypes.c_long(0x10000000 | 17), *[ctypes.c_long(0)] * 4)) == 0:
        os._exit(0)
attempt("clone into a user namespace", clone_into_user_namespace)
attempt("+clone", lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0))
attempt("enter the own network namespace", lambda: called(libc.setns(os.open("/proc/self/ns/net", os.O_RDONLY), 0)))
attempt("enter another's", lambda: called(libc.setns(os.open("/proc/1/ns/mnt", os.O_RDONLY), 0)))
"""
_CLONE3 = """
attempt("clone3", lambda: called(libc.syscall(ctypes.c_long(435), ctypes.c_void_p(0), ctypes.c_long(0))))
import threading
def thread():
    found = []; t = threading.Thread(target=found.append, args=(1,)); t.start(); t.join(); assert found
attempt("+threads", thread)
"""
_MOUNTS = """
attempt("mount a tmpfs", lambda: called(libc.mount(b"none", b"/tmp", b"tmpfs", 0, 0)))
attempt("bind the workspace", lambda: called(libc.mount(b".", b"/tmp", 0, 4096, 0)))
attempt("make the root writable", lambda: called(libc.mount(b"none", b"/", 0, 32 | 4096, 0)))
attempt("unmount /proc", lambda: called(libc.umount2(b"/proc", 2)))
attempt("change the root", lambda: os.chroot("."))
"""
_DEVICES = """
for path in ("dev-probe", "fifo-probe"):
    try: os.unlink(path)
    except FileNotFoundError: pass
attempt("make a disk", lambda: os.mknod("dev-probe", 0o600 | 0o060000, os.makedev(8, 0)))
attempt("make /dev/mem", lambda: os.mknod("dev-probe", 0o600 | 0o020000, os.makedev(1, 1)))
attempt("+make a pipe", lambda: os.mkfifo("fifo-probe"))
"""
_ROOT = """
attempt("become root", lambda: os.setuid(0))
attempt("become root by three ids", lambda: os.setresuid(0, 0, 0))
attempt("join root's group", lambda: os.setgid(0))
attempt("join groups", lambda: os.setgroups([0]))
attempt("+stay", lambda: os.setuid(os.getuid()))
"""
_FAMILIES = """
for word, family in (("vsock", 40), ("crypto", 38), ("packets", 17), ("keys", 15), ("bluetooth", 31), ("can", 29), ("tipc", 30)):
    attempt("socket for " + word, lambda: socket.socket(family, socket.SOCK_DGRAM))
for word, protocol in (("netfilter", 12), ("audit", 9), ("uevents", 15), ("generic", 16)):
    attempt("netlink for " + word, lambda: socket.socket(16, socket.SOCK_RAW, protocol))
attempt("+socket between processes", lambda: socket.socketpair())
attempt("+socket for loopback", lambda: socket.socket(socket.AF_INET))
attempt("+netlink for routes", lambda: socket.socket(16, socket.SOCK_RAW, 0))
"""
_RAW = """
attempt("raw packets", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("raw packets, all", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 255))
attempt("raw packets, v6", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58))
attempt("+datagrams", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
"""
_PERSONALITY = """
attempt("switch off randomised addresses", lambda: called(libc.personality(ctypes.c_ulong(0x40000))))
attempt("make readable memory executable", lambda: called(libc.personality(ctypes.c_ulong(0x400000))))
attempt("+ask", lambda: called(libc.personality(ctypes.c_ulong(0xffffffff))))
"""
_INT80 = """
import mmap
print("begun", flush=True)
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3")  # mov eax, 20 (getpid of the 32-bit table); int 0x80; ret
print("reached", ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))())
"""


def _other_entry(context: ProbeContext) -> None:
    machine = expect_exit(context.run("uname", "-m")).stdout.strip()
    expect(machine, "the machine has no name")
    if machine != b"x86_64":
        return  # only on x86_64 a program can use both system call tables
    ran = context.python(PRELUDE + _INT80)
    expect(ran.stdout.startswith(b"begun"), f"it did not run: {ran.stderr[-200:]!r}")
    if b"reached" in ran.stdout or ran.result.kind is not ExitKind.SIGNALED:
        raise ProbeFailed(f"a 32-bit system call was answered: {ran.stdout!r} {ran.stderr[-200:]!r}")


PROBES = (
    *(
        Probe(f"escape-denied-{denial.family}", f"refused: {', '.join(denial.names)}", _denied(denial))
        for denial in DENIALS
    ),
    Probe(
        "escape-capabilities",
        "a tool has no capability, and no more in its bounding set than the runner needs",
        _capabilities,
    ),
    Probe("escape-no-new-privileges", "no program can gain rights by being executed", _no_new_privileges),
    Probe("escape-filter", "a filter of system calls is in force", _filtered),
    Probe("escape-root", "a tool cannot become root or join its groups", refused_with(_ROOT, "EPERM")),
    Probe(
        "escape-namespaces",
        "no new namespace, by any call, and no entering one",
        refused_with(_NAMESPACES, "EPERM", "EACCES"),
    ),
    Probe("escape-clone3", "clone3 is not there, and threads work without", refused_with(_CLONE3, "ENOSYS")),
    Probe("escape-mounts", "nothing can be mounted, bound, made writable or unmounted", refused_with(_MOUNTS, "EPERM")),
    Probe("escape-devices", "no device can be made; pipes can", refused_with(_DEVICES, "EPERM")),
    Probe("escape-socket-families", "no sockets but local ones, loopback and routes", refused_with(_FAMILIES, "EPERM")),
    Probe("escape-raw-sockets", "no raw packets", refused_with(_RAW, "EPERM")),
    Probe("escape-personality", "address randomisation cannot be switched off", refused_with(_PERSONALITY, "EPERM")),
    Probe(
        "escape-32-bit-entry",
        "the 32-bit table of system calls, which the filter does not cover, kills who uses it",
        _other_entry,
    ),
)
