"""Pings a Docker engine's address and classifies failures."""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from codesdk.errors import Fault
from codesdk.provision.system.command import run, which
from codesdk.sandbox.docker.engine_tls import find_tls
from codesdk.settings import Settings

PING_S = 5.0
"""Seconds to wait for one answer. A loaded engine takes tens of milliseconds; a hung one never answers."""


class EndpointState(Enum):
    """The result of a ping."""

    ENGINE = auto()
    FORBIDDEN = auto()
    SILENT = auto()
    """Something accepts connections but doesn't answer in time: the engine starts, hangs or is overloaded. Never
    replace it.
    """
    NOTHING = auto()


@dataclass(frozen=True)
class Ping:
    """One ping and its result."""

    answer: EndpointState
    detail: str = ""
    api_version: str = ""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the socket. http.client calls this before the first request."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def ping(host: str, *, timeout_s: float = PING_S) -> Ping:
    """Request `/version`: directly for `unix://…`, through the docker CLI for other schemes (`tcp://`, `ssh://`)."""
    return _ping_unix(host.removeprefix("unix://"), timeout_s) if host.startswith("unix://") else _ping_cli(host)


def _ping_unix(path: str, timeout_s: float) -> Ping:
    connection = UnixConnection(path, timeout_s)
    try:
        connection.request("GET", "/version")
        response = connection.getresponse()
        body: Any = json.loads(response.read() or b"{}")
    except PermissionError as problem:
        return Ping(EndpointState.FORBIDDEN, problem.strerror or "permission denied")
    except TimeoutError:
        return Ping(EndpointState.SILENT, f"no answer within {timeout_s:g} s")
    except OSError as problem:
        return Ping(EndpointState.NOTHING, problem.strerror or str(problem))
    except (http.client.HTTPException, ValueError) as problem:
        return Ping(EndpointState.NOTHING, f"not an engine: {problem}")
    finally:
        connection.close()
    if response.status != http.client.OK or not isinstance(body, dict):
        return Ping(EndpointState.NOTHING, f"HTTP {response.status}")
    return Ping(EndpointState.ENGINE, str(body.get("Version", "")), str(body.get("ApiVersion", "")))


def tls_flags(host: str) -> tuple[str, ...]:
    """Return the docker CLI flags that make it use and verify the same certificates as our own client.

    Raises:
        EnginePlain, EngineCertificate: our client would refuse this address.
    """
    files = find_tls(Settings(), host)
    if files is None:
        return ()
    return ("--tlsverify", f"--tlscacert={files.ca}", f"--tlscert={files.cert}", f"--tlskey={files.key}")


def _ping_cli(host: str) -> Ping:
    docker = which("docker")
    if docker is None:
        return Ping(EndpointState.NOTHING, f"no docker command to reach {host}")
    try:
        flags = tls_flags(host)
    except Fault as fault:
        return Ping(EndpointState.NOTHING, fault.message)
    shown = "{{.Server.Version}} {{.Server.APIVersion}}"
    argv = [docker, *flags, "--host", host, "version", "--format", shown]
    done = run(argv, deadline_s=4 * PING_S)
    version, _, api = done.stdout.strip().partition(" ")
    return (
        Ping(EndpointState.ENGINE, version, api)
        if done.ok and version
        else Ping(EndpointState.NOTHING, done.output_tail())
    )
