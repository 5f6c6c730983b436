"""Identifies the process at the other end of a loopback connection, from /proc.

A credential alone isn't enough: all tool processes share a uid, so each can read another's environment. The kernel's
socket table shows which socket is connected to ours, and /proc shows which processes hold it. Reading a tool's
descriptors takes a thread with the tool's ids; root without CAP_SYS_PTRACE can't.
"""

from __future__ import annotations

import os
import socket
import sys

from codesdk.sandbox.runner.execution import process_tree

_ESTABLISHED = "01"
_MAPPED = "0" * 16 + "{:08X}".format(int.from_bytes(b"\0\0\xff\xff", sys.byteorder))


def _word(host: str) -> str:
    """Format an IPv4 address as in /proc/net/tcp: hex in host byte order."""
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}"


def inode_of(peer: tuple[str, int], ours: tuple[str, int], root: str = "/proc") -> int | None:
    """Return the inode of the socket bound to `peer` and connected to `ours`; None if it is gone."""
    ends = tuple((_word(host), f":{port:04X}") for host, port in (peer, ours))
    # A program that connects from an IPv6 socket to ::ffff:127.0.0.1 is listed in tcp6.
    for name, prefix in (("tcp", ""), ("tcp6", _MAPPED)):
        local, remote = (prefix + word + port for word, port in ends)
        try:
            with open(root + "/net/" + name, encoding="ascii") as table:
                for line in table:
                    fields = line.split()
                    if fields[1:4] == [local, remote, _ESTABLISHED]:
                        return int(fields[9]) or None
        except OSError:
            continue  # a kernel without IPv6
    return None


def holders(inode: int, root: str = "/proc") -> list[int]:
    """Return the processes that have the socket open and are visible to this thread."""
    wanted = "socket:[" + str(inode) + "]"
    names = filter(str.isdigit, os.listdir(root))
    return [int(name) for name in names if _holds(root + "/" + name + "/fd", wanted)]


def _holds(folder: str, wanted: str) -> bool:
    try:
        names = os.listdir(folder)
    except OSError:
        return False  # it ended, or it isn't a tool's process
    for name in names:
        try:
            if os.readlink(folder + "/" + name) == wanted:
                return True
        except OSError:
            continue  # closed meanwhile
    return False


def lineages(peer: tuple[str, int], ours: tuple[str, int]) -> list[set[int]]:
    """Return a set per process that holds the peer's socket: its pid and all ancestors. Empty if none is found."""
    inode = inode_of(peer, ours)
    if inode is None:
        return []
    pids = holders(inode)
    table = process_tree.parents()
    return [ancestors(pid, table) for pid in pids]


def ancestors(pid: int, table: process_tree.Table) -> set[int]:
    """Return the pids of the process and its ancestors."""
    found: set[int] = set()
    while pid in table and pid not in found:
        found.add(pid)
        pid = table[pid][0]
    return found
