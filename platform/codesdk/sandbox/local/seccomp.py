"""A seccomp filter as BPF instructions: denies calls that no tool needs or that have kernel bugs, allows all others.

Containers get an allowlist. This is a denylist, because a filter for the programs of an unknown machine must not break
them. Standard library only: the shim uses it.
"""

from __future__ import annotations

import errno
import os
import struct

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16
_X32 = 0x40000000
_NAMESPACES = 0x7E020080
"""CLONE_NEW* flags: user, mount, cgroup, UTS, IPC, PID, network, time."""
_AF_ALG, _AF_VSOCK = 38, 40
_TIOCSTI = 0x5412

_COMMON = {
    "fresh mount interface: needs root; kept from a runner that is taken over": (428, 429, 430, 431, 432, 433, 442),
    "io_uring: a second door to most system calls, past this filter": (425, 426, 427),
    "pidfd_getfd, process_madvise: reach into other processes": (438, 440),
    "quotactl_fd": (443,),
}
_REFUSED: dict[str, dict[str, tuple[int, ...]]] = {
    "x86_64": {
        "mounting and roots": (155, 161, 165, 166),
        "namespaces": (272, 308),
        "modules, other kernels, reboot, swap, accounting, quota": (
            163, 167, 168, 169, 174, 175, 176, 177, 178, 179, 180, 246, 313, 320,
        ),
        "keys: not divided by namespaces": (248, 249, 250),
        "programs in the kernel, performance counters": (298, 321),
        "userfaultfd: wins races in the kernel": (323,),
        "files by handle: past every mount": (303, 304),
        "memory of other processes": (279, 256, 310, 311, 312),
        "clock, host name, kernel log, terminals, ports, old tables": (
            103, 134, 139, 153, 154, 156, 159, 164, 170, 171, 172, 173, 212, 227, 305,
        ),
        "watching everybody's files": (300,),
    },
    "aarch64": {
        "mounting and roots": (39, 40, 41, 51),
        "namespaces": (97, 268),
        "modules, other kernels, reboot, swap, accounting, quota": (
            42, 60, 89, 104, 105, 106, 142, 224, 225, 273, 294,
        ),
        "keys: not divided by namespaces": (217, 218, 219),
        "programs in the kernel, performance counters": (241, 280),
        "userfaultfd: wins races in the kernel": (282,),
        "files by handle: past every mount": (264, 265),
        "memory of other processes": (238, 239, 270, 271, 272),
        "clock, host name, kernel log, terminals, old tables": (18, 58, 112, 116, 161, 162, 170, 171, 266),
        "watching everybody's files": (262,),
    },
}  # fmt: skip
_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_CLONE = {"x86_64": 56, "aarch64": 220}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_CLONE3 = 435

Instruction = tuple[int, int, int, int]


def supported(machine: str | None = None) -> bool:
    """Return whether there is a filter for this architecture."""
    return (machine or os.uname().machine) in _REFUSED


def program(machine: str | None = None) -> bytes:
    """Return the filter as an array of `struct sock_filter`."""
    return b"".join(struct.pack("=HBBI", *step) for step in _steps(machine or os.uname().machine))


def _refuse(code: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | code)


def _steps(machine: str) -> list[Instruction]:
    numbers = sorted({n for group in (_COMMON, _REFUSED[machine]) for part in group.values() for n in part})
    steps: list[Instruction] = [
        (_LOAD, 0, 0, _ARCH),
        # Call numbers differ between architectures, so 32-bit programs are denied.
        (_EQUAL, 1, 0, _ARCHITECTURE[machine]),
        _refuse(errno.EPERM),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        steps += [(_AT_LEAST, 0, 1, _X32), _refuse(errno.EPERM)]
    # clone3 has its flags in memory, which a filter can't read; on ENOSYS C libraries fall back to clone.
    steps += [(_EQUAL, 0, 1, _CLONE3), _refuse(errno.ENOSYS)]
    for number in numbers:
        steps += [(_EQUAL, 0, 1, number), _refuse(errno.EPERM)]
    steps += _by_argument(_CLONE[machine], 0, [(_ANY_BIT, _NAMESPACES)])
    steps += _by_argument(_SOCKET[machine], 0, [(_EQUAL, _AF_ALG), (_EQUAL, _AF_VSOCK)])
    steps += _by_argument(_IOCTL[machine], 1, [(_EQUAL, _TIOCSTI)])
    return [*steps, (_RETURN, 0, 0, _ALLOW)]


def _by_argument(number: int, index: int, tests: list[tuple[int, int]]) -> list[Instruction]:
    """Deny the call if the low half of this argument passes one of the tests."""
    body: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENT + 8 * index)]
    for kind, value in tests:
        body += [(kind, 0, 1, value), _refuse(errno.EPERM)]
    body.append((_LOAD, 0, 0, _NUMBER))
    return [(_EQUAL, 0, len(body), number), *body]
