"""Escape probes: the network, and sockets of the engine and the host."""

from __future__ import annotations

from codesdk.sandbox.selfcheck.escape_attempts import refused_with
from codesdk.sandbox.selfcheck.probe import Probe, prints

_CONNECT = """
def connect(address, port=80):
    with socket.create_connection((address, port), 1): pass
def send(address):
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as s: s.sendto(b"x", (address, 53))
for address in ADDRESSES:
    attempt("connect to " + address, lambda: connect(address))
    attempt("send to " + address, lambda: send(address))
def loopback():
    with socket.create_server(("127.0.0.1", 0)) as s, socket.create_connection(s.getsockname(), 2): pass
attempt("+connect on loopback", loopback)
"""
METADATA = ("169.254.169.254", "169.254.170.2", "100.100.100.200", "fd00:ec2::254")
OUTSIDE = ("1.1.1.1", "8.8.8.8", "10.0.0.1", "172.17.0.1", "192.168.0.1", "2606:4700:4700::1111", "fe80::1")
NO_ROUTE = ("ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "EINVAL")
"""Errors of a sandbox without network. A refused or timed-out connection would mean that a packet was sent."""
_NAMES = """
for name in ("example.com", "host.docker.internal", "metadata.google.internal"):
    attempt("resolve " + name, lambda: socket.getaddrinfo(name, 80))
attempt("+resolve localhost", lambda: socket.getaddrinfo("localhost", 80))
"""

_INTERFACES = """
import socket
print(sorted(name for _, name in socket.if_nameindex()))
routes = open("/proc/net/route").read().splitlines()[1:]
print(len(routes))
"""
_SOCKETS = """
import os, stat
looked, found = 0, []
for folder, names, files in os.walk("/"):
    if folder == "/": names[:] = [n for n in names if n not in ("proc", "sys", "workspace")]
    looked += 1
    for name in files:
        path = os.path.join(folder, name)
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode): found.append(path)
        except OSError: pass
named = [p for p in ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/run/podman", "/var/run/crio") if os.path.exists(p)]
print(looked > 10, found + named)
"""
_ABSTRACT = """
import socket
def names(): return sorted(l.split()[7] for l in open("/proc/net/unix").read().splitlines()[1:] if len(l.split()) > 7)
before = names()
own = socket.socket(socket.AF_UNIX); own.bind("\\0codesdk-probe"); own.listen()
print(before, [n for n in names() if n not in before])
"""

PROBES = (
    Probe(
        "escape-engine-socket",
        "no socket of the engine, nor any other, lies in the file system",
        prints(_SOCKETS, b"True []\n", "searched, and found"),
    ),
    Probe(
        "escape-abstract-sockets",
        "no abstract socket of the host can be seen (CVE-2020-15257)",
        prints(_ABSTRACT, b"[] ['@codesdk-probe']\n", "abstract sockets, and the control"),
    ),
    Probe(
        "escape-interfaces",
        "there is loopback, and no route",
        prints(_INTERFACES, b"['lo']\n0\n", "interfaces and routes"),
    ),
    Probe(
        "escape-metadata",
        "a cloud's metadata addresses lead nowhere",
        refused_with(f"ADDRESSES = {METADATA!r}\n{_CONNECT}", *NO_ROUTE),
    ),
    Probe(
        "escape-network",
        "the internet, private networks and the engine's gateway lead nowhere",
        refused_with(f"ADDRESSES = {OUTSIDE!r}\n{_CONNECT}", *NO_ROUTE),
    ),
    Probe("escape-names", "no name is resolved", refused_with(_NAMES, "NO_NAME")),
)
