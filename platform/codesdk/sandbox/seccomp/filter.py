"""Builds the seccomp profile in the engine's format. No I/O; it is sent inline, so remote engines need no file.

Needs Docker 20.10.10 or later: older versions don't know `errnoRet` and return EPERM where the C library needs ENOSYS.
"""

from __future__ import annotations

import errno
import json
from functools import cache
from typing import Any

from codesdk.sandbox.seccomp.allowed_syscalls import (
    CONNECTED_SOCKET_PAIRS,
    ENOSYS_CALLS,
    GRANTS,
    NAMED_UNIX_SOCKETS,
    SOCKET_PAIRS,
    Argument,
    Grant,
)

ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
"""Without sub-architectures: 32-bit and x32 programs are killed, whose calls bypass the conditions on arguments."""


def _condition(argument: Argument) -> dict[str, Any]:
    if argument.mask is None:
        return {"index": argument.index, "value": argument.equals, "valueTwo": 0, "op": "SCMP_CMP_EQ"}
    return {"index": argument.index, "value": argument.mask, "valueTwo": argument.equals, "op": "SCMP_CMP_MASKED_EQ"}


def _rule(grant: Grant) -> dict[str, Any]:
    return {
        "names": list(grant.names),
        "action": "SCMP_ACT_ALLOW",
        "args": [_condition(argument) for argument in grant.where],
    }


def document(*, apart: bool = False) -> dict[str, Any]:
    """Return the profile in the engine's format.

    `apart`: for a sandbox that reads another's workspace. Through a Unix socket there it could receive descriptors that
    are open for writing, and a read-only mount doesn't prevent connecting to one.
    """
    left_out, instead = ({*NAMED_UNIX_SOCKETS, SOCKET_PAIRS}, CONNECTED_SOCKET_PAIRS) if apart else (set[Grant](), ())
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "archMap": [{"architecture": name, "subArchitectures": []} for name in ARCHITECTURES],
        "syscalls": [
            *(_rule(grant) for grant in (*GRANTS, *instead) if grant not in left_out),
            {"names": list(ENOSYS_CALLS), "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS},
        ],
    }


@cache
def option(*, apart: bool = False) -> str:
    """Return the entry for a container's `security_opt`. Always the same text: it is compared with the engine's."""
    return "seccomp=" + json.dumps(document(apart=apart), separators=(",", ":"))
