"""System calls that Python lacks, or that it applies to the whole process when we need one thread.

glibc's `setresuid` changes all threads. The raw call changes only the calling thread, so one thread can work with the
tool's rights while the others keep root's three capabilities.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

CHOWN, KILL, SETGID, SETUID = 0, 5, 6, 7
"""Capability numbers (linux/capability.h)."""

SEED_UID = 65_533
"""Uid and gid that fill and own a read-only workspace. Not root's, not a tool's; no other process runs with them."""

RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x02, 0x04, 0x08
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36
_CAPABILITY_VERSION_3 = 0x20080522

_NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {"setgroups": 116, "setresuid": 117, "setresgid": 119, "capset": 126, "renameat2": 316, "openat2": 437},
    "aarch64": {"setgroups": 159, "setresuid": 147, "setresgid": 149, "capset": 91, "renameat2": 276, "openat2": 437},
}
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
"""Landlock's system calls; the same numbers on every machine."""
_LANDLOCK_REFER = 1 << 13
_LANDLOCK_WITH_REFER = 2
"""First version of Landlock that can allow renames between directories; version 1 forbids them in every domain."""

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, name + ": " + os.strerror(code))
    return result


def _call(name: str, *arguments: object) -> int:
    machine = os.uname().machine
    if machine not in _NUMBERS:
        raise OSError(errno.ENOSYS, "no system call numbers for this machine: " + machine)
    return _checked(name, int(_libc.syscall(ctypes.c_long(_NUMBERS[machine][name]), *arguments)))


def _prctl(option: int, value: int) -> None:
    zero = ctypes.c_ulong(0)
    _checked("prctl", _libc.prctl(option, ctypes.c_ulong(value), zero, zero, zero))


def set_thread_uids(real: int, effective: int, saved: int) -> None:
    """Set the calling thread's uids; -1 keeps the current one."""
    _call("setresuid", ctypes.c_long(real), ctypes.c_long(effective), ctypes.c_long(saved))


def set_thread_gids(real: int, effective: int, saved: int) -> None:
    """Set the calling thread's gids; -1 keeps the current one."""
    _call("setresgid", ctypes.c_long(real), ctypes.c_long(effective), ctypes.c_long(saved))


def clear_thread_groups() -> None:
    """Drop the calling thread's supplementary groups."""
    _call("setgroups", ctypes.c_long(0), ctypes.c_void_p(None))


def keep_capabilities(numbers: Iterable[int]) -> None:
    """Drop all capabilities of the calling thread except these."""
    mask = sum(1 << number for number in numbers)
    head = ctypes.create_string_buffer(struct.pack("=Ii", _CAPABILITY_VERSION_3, 0))
    low = mask & 0xFFFFFFFF
    data = ctypes.create_string_buffer(struct.pack("=6I", low, low, 0, mask >> 32, mask >> 32, 0))
    _call("capset", head, data)


def become_subreaper() -> bool:
    """Make this process a subreaper. Returns False where that isn't supported, as under gVisor."""
    try:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    return True


def hide_memory() -> None:
    """Make this process undumpable: no ptrace and no core dump, even for its own uid."""
    _prctl(_PR_SET_DUMPABLE, 0)


def show_memory() -> None:
    """Undo `hide_memory`; the process's files in /proc belong to its uid again."""
    _prctl(_PR_SET_DUMPABLE, 1)


def enter_domain() -> bool:
    """Enter a Landlock domain that restricts nothing but access to processes outside of it. Children inherit it.

    A process in a domain can't trace, read or write the memory, descriptors or environment of one outside, even with the
    same uid. Returns False where the kernel has no Landlock, has one that would forbid renames as well, or refuses it to
    a process that can still gain rights; the attestation says so.

    Raises:
        OSError: the kernel refuses a domain for another reason.
    """
    null, zero = ctypes.c_void_p(None), ctypes.c_ulong(0)
    if int(_libc.syscall(ctypes.c_long(_LANDLOCK_CREATE), null, zero, ctypes.c_ulong(1))) < _LANDLOCK_WITH_REFER:
        return False
    # A ruleset must govern something: it governs renames between directories, and allows all of them.
    handled = ctypes.create_string_buffer(struct.pack("=Q", _LANDLOCK_REFER), 8)
    ruleset = _landlock(_LANDLOCK_CREATE, handled, ctypes.c_size_t(8), zero)
    try:
        root = os.open("/", os.O_PATH | os.O_CLOEXEC)
        try:
            beneath = ctypes.create_string_buffer(struct.pack("=Qi", _LANDLOCK_REFER, root), 12)
            _landlock(_LANDLOCK_ADD, ctypes.c_long(ruleset), ctypes.c_long(1), beneath, zero)
        finally:
            os.close(root)
        _landlock(_LANDLOCK_RESTRICT, ctypes.c_long(ruleset), zero)
    except PermissionError:  # without no_new_privs
        return False
    finally:
        os.close(ruleset)
    return True


def _landlock(number: int, *arguments: object) -> int:
    return _checked("landlock", int(_libc.syscall(ctypes.c_long(number), *arguments)))


def use_one_arena() -> None:
    """Share one malloc arena among threads to save memory. glibc only; no-op elsewhere."""
    if hasattr(_libc, "mallopt"):
        _libc.mallopt(ctypes.c_int(-8), ctypes.c_int(1))  # M_ARENA_MAX


def trim_memory() -> None:
    """Return freed memory to the kernel. glibc only; no-op elsewhere."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(ctypes.c_size_t(0))


def inotify() -> int:
    """Open a non-blocking inotify descriptor.

    Raises:
        OSError: EMFILE at the limit of the effective uid.
    """
    return _checked("inotify_init1", _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add(fd: int, directory: int, mask: int) -> int:
    """Watch an open directory; returns the watch descriptor.

    Raises:
        OSError: ENOSPC at the limit of the effective uid.
    """
    path = ctypes.c_char_p(b"/proc/self/fd/%d" % directory)  # the open directory, even if it was renamed
    return _checked("inotify_add_watch", _libc.inotify_add_watch(fd, path, ctypes.c_uint32(mask)))


def inotify_forget(fd: int, number: int) -> None:
    """Remove a watch. Idempotent."""
    _libc.inotify_rm_watch(fd, number)


def openat2(directory: int, path: str, flags: int, mode: int, resolve: int) -> int:
    """Open a path below a directory; the raw system call.

    Raises:
        OSError: ENOSYS if unsupported (kernel before 5.6, gVisor); EXDEV if the path leaves the directory.
    """
    how = ctypes.create_string_buffer(struct.pack("=QQQ", flags | os.O_CLOEXEC, mode, resolve), 24)
    encoded = ctypes.c_char_p(os.fsencode(path))
    return _call("openat2", ctypes.c_long(directory), encoded, how, ctypes.c_size_t(24))


def rename_new(source: int, name: str, target: int, new_name: str) -> None:
    """Rename atomically; never replaces the target.

    Raises:
        OSError: EEXIST if the target exists; ENOSYS or EINVAL if unsupported.
    """
    only_new = 1  # RENAME_NOREPLACE
    before, after = ctypes.c_char_p(os.fsencode(name)), ctypes.c_char_p(os.fsencode(new_name))
    _call("renameat2", ctypes.c_long(source), before, ctypes.c_long(target), after, ctypes.c_uint(only_new))
