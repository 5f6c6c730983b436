"""A network of the tests' own: a name server that they script, and servers at public and private addresses.

It exists in a network namespace of a child process, in which the system's resolver asks that name server. The proxy runs
there with the resolver and the address policy of a worker.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from codesdk.domain.network.addresses import public_only
from codesdk.domain.network.resolver import public_and_remote, system_resolve
from egress_stage import Authority, HttpServer, Stage, client_hello, rules, staged, tls_exchange

PUBLIC, PRIVATE, METADATA, LOOPBACK = "93.184.216.34", "10.1.2.3", "169.254.169.254", "127.0.0.1"
ADDRESSES = (PUBLIC, PRIVATE, METADATA, LOOPBACK)
"""A server listens on port 80 of each."""
RESOLV_CONF = "nameserver 127.0.0.1\nsearch corp.internal\noptions timeout:2 attempts:1 ndots:3\n"
NSSWITCH_CONF = "hosts: dns\n"
_SET_ADDRESS = 0x8916  # SIOCSIFADDR
_A, _CNAME, _AAAA = 1, 5, 28
_NO_SUCH_NAME = 3

Names = dict[str, list[list[str]]]
"""Of each name what successive look-ups are answered: addresses, or a name that it stands for."""


class NameServer:
    """Answers as scripted, never to be kept (TTL 0)."""

    def __init__(self) -> None:
        self.names: Names = {}
        self.asked: list[str] = []
        """The names of look-ups, in order."""
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def script(self, names: Names) -> None:
        self.names, self.asked = names, []

    def _serve(self) -> None:
        while True:
            question, sender = self._socket.recvfrom(4096)
            self._socket.sendto(self._answer(question), sender)

    def _answer(self, question: bytes) -> bytes:
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        name, kind = ".".join(labels).lower(), struct.unpack_from(">H", question, at + 1)[0]
        if kind == _A:
            self.asked.append(name)  # each look-up asks for both kinds
        records = self._records(name, kind)
        head = question[:2] + struct.pack(
            ">HHHHH", 0x8180 | (0 if name in self.names else _NO_SUCH_NAME), 1, len(records), 0, 0
        )
        return head + question[12 : at + 5] + b"".join(records)

    def _records(self, name: str, kind: int) -> list[bytes]:
        answers = self.names.get(name, [[]])
        found = []
        for item in answers[min(max(self.asked.count(name), 1), len(answers)) - 1]:
            try:
                address = ipaddress.ip_address(item)
            except ValueError:
                found += [_record(name, _CNAME, _encode(item)), *self._records(item, kind)]
                continue
            if kind == (_A if address.version == 4 else _AAAA):
                found.append(_record(name, kind, address.packed))
        return found


def _encode(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def _record(name: str, kind: int, data: bytes) -> bytes:
    return _encode(name) + struct.pack(">HHIH", kind, 1, 0, len(data)) + data


class NamedNetwork:
    """The parent's side: plays scenarios in the child."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def play(self, names: Names, allowed: list[dict[str, Any]], *steps: list[str], **more: Any) -> dict[str, Any]:
        """Look-ups, steps in order, and what came of them.

        A step is ["get", host, path], ["connect", host], or ["tunnel", host, server name, host asked for inside]. `redirect`: where the
        public server leads. `policy`: "worker" also refuses the machine's own addresses, which here are all.
        """
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps({"names": names, "rules": allowed, "steps": steps, **more}) + "\n")
        self._child.stdin.flush()
        line = self._child.stdout.readline()
        assert line, "the child has ended"
        return dict(json.loads(line))


@contextlib.contextmanager
def named_network(bwrap: str) -> Iterator[NamedNetwork]:
    """A child process in a network of its own, in which the system's resolver asks the tests' name server."""
    with tempfile.TemporaryDirectory(prefix="codesdk-names-") as folder:
        files = []
        for place, text in (("/etc/resolv.conf", RESOLV_CONF), ("/etc/nsswitch.conf", NSSWITCH_CONF)):
            real = Path(place).resolve()
            if real.exists():
                ours = Path(folder) / real.name
                ours.write_text(text)
                files += ["--ro-bind", str(ours), str(real)]
        user = [] if os.geteuid() == 0 else ["--unshare-user", "--uid", "0", "--gid", "0"]
        argv = [bwrap, *user, "--dev-bind", "/", "/", *files, "--unshare-net", "--cap-add", "ALL", "--die-with-parent"]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        with subprocess.Popen(
            [*argv, sys.executable, "-m", "named_network", folder],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
        ) as child:  # fmt: skip
            try:
                yield NamedNetwork(child)
            finally:
                assert child.stdin is not None
                child.stdin.close()
                child.wait(timeout=60)


# -- in the child -----------------------------------------------------------------------------------------------------


def _add_address(number: int, address: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        where = struct.pack("16sHH4s8x", f"lo:{number}".encode(), socket.AF_INET, 0, socket.inet_aton(address))
        fcntl.ioctl(made, _SET_ADDRESS, where)


def _step(stage: Stage, authority: Authority, step: list[str]) -> str:
    if step[0] == "get":
        _, host, path = step
        return stage.ask(f"GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n{{auth}}\r\n\r\n").read_all().decode()
    if step[0] == "connect":
        return stage.ask(f"CONNECT {step[1]}:443 HTTP/1.1\r\n{{auth}}\r\n\r\n").read_all().decode()
    _, host, server_name, inner = step
    connection = stage.connect_tls(host, 443)
    if server_name != host:
        connection.send(client_hello(server_name))
        return connection.read_all().decode("latin-1")
    request = f"GET / HTTP/1.1\r\nHost: {inner}\r\n\r\n".encode()
    answer = tls_exchange(connection, authority.client(), host, request).decode()
    connection.finish()
    return answer


def main(folder: str) -> None:
    """Serve scenarios until stdin ends."""
    for number, address in enumerate(ADDRESSES[:-1], 1):
        _add_address(number, address)
    names, authority = NameServer(), Authority(Path(folder))
    servers = {address: HttpServer(address=(address, 80)) for address in ADDRESSES}
    secure = HttpServer(tls=authority.server("a.example"), address=(PUBLIC, 443))
    for line in sys.stdin:
        scenario = json.loads(line)
        names.script(scenario["names"])
        for server in (*servers.values(), secure):
            server.requests.clear()
        redirect = scenario.get("redirect")
        servers[PUBLIC].answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        if redirect:
            servers[PUBLIC].answer = f"HTTP/1.1 302 Found\r\nLocation: {redirect}\r\nContent-Length: 0\r\n\r\n".encode()
        policy = public_and_remote if scenario.get("policy") == "worker" else public_only
        answers, ends = [], []
        with staged(resolve=system_resolve, policy=policy) as stage:
            stage.grant(rules(*scenario["rules"]))
            for count, step in enumerate(scenario["steps"], 1):
                answers.append(_step(stage, authority, step))
                ends.append(stage.last(count).model_dump(mode="json"))
        reached = {address: len(server.requests) for address, server in servers.items() if server.requests}
        inside = [data.decode() for data in secure.requests]
        found = {"answers": answers, "ends": ends, "asked": names.asked, "reached": reached, "inside": inside}
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
    for server in (*servers.values(), secure):
        server.close()


if __name__ == "__main__":
    main(sys.argv[1])
