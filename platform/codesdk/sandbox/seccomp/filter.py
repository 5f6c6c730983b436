"""The profile in the engine's words. Pure data; it is sent inline, so remote engines need no file.

Docker 20.10.10 or newer: older ones do not know `errnoRet`, and answer EPERM where the C library needs ENOSYS.
"""

from __future__ import annotations

import errno
import json
from functools import cache
from typing import Any

from codesdk.sandbox.seccomp.grants import (
    CONNECTED_SOCKET_PAIRS,
    ENOSYS_CALLS,
    GRANTS,
    NAMED_UNIX_SOCKETS,
    SOCKET_PAIRS,
    Argument,
    Grant,
)

ARCHITECTURES = ("SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64")
"""Each alone. 32-bit programs and x32 are killed: a second entry into the kernel, past conditions on arguments."""


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
    """The profile, as the engine reads it.

    `apart`: for a sandbox that reads another's workspace. A socket there would be a way to be handed what is open for
    writing, and a mount that is only read does not keep anybody from connecting to one.
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
    """The entry for a container's `security_opt`. The same text always: it is compared with what the engine has."""
    return "seccomp=" + json.dumps(document(apart=apart), separators=(",", ":"))
