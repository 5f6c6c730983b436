"""The Docker engine: client, error translation, and streams to attached containers."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.tls import TLSConfig
from docker.utils import kwargs_from_env

from codesdk.sandbox.docker.engine_tls import EngineTls, TlsSocket, find_tls, over_network, tls_fault
from codesdk.sandbox.port.faults import EngineRefused, EngineUnavailable, ImageMissing
from codesdk.settings import Settings
from codesdk.settings.docker_variables import engine_address

CALL_S = 60
"""Request timeout in seconds. Creating 50 containers at once on two cores stays far below."""
_EVENTS_KEPT = 256
"""Events that dockerd keeps (moby, daemon/events: eventsLimit)."""
_EVENT_WINDOW_S = 0.05
_OLDEST_API = "1.41"
"""API version of Docker 20.10. The version request works with any."""
_MOUNTS = Path("/proc/self/mountinfo")
_OWN_CONTAINER = re.compile(r"/containers/([0-9a-f]{64})/hostname /etc/hostname ")
"""The engine mounts its own file at /etc/hostname of every container."""
_SHUTDOWN_MESSAGES = ("database not open", "transport is closing")
"""Errors of an engine that is shutting down: its volume store is closed, or its containerd has ended."""
_FRAME = struct.Struct(">BxxxL")
_STDOUT = 1
_STDERR_KEPT = 4096


class Engine:
    """A Docker engine at an address (`unix:///…`, `tcp://…`); None takes it from the environment.

    `tls`: the certificate files for an engine on the network; None takes them from the settings.

    Raises:
        EnginePlain: the engine is on another machine, and no certificate files are set.
        EngineUntrusted, EngineCertificate: one side rejects the other's certificate.
        EngineUnavailable: the engine doesn't answer.
    """

    def __init__(self, host: str | None = None, *, tls: EngineTls | None = None) -> None:
        self.endpoint = host or "DOCKER_HOST or its default"
        address = host or engine_address()
        if over_network(address):
            host, tls = address, tls or find_tls(Settings(), address)
        self.client = _client(host, _OLDEST_API, tls)
        try:
            with self.doing("connect"):
                _check_socket(str(self.client.api.base_url), host)
                spoken = str(self.client.api.version(api_version=False)["ApiVersion"])
        finally:
            self.client.close()
        self.client = _client(host, spoken, tls)
        self.api = self.client.api
        self.endpoint = str(self.api.base_url) if host is None else host

    @contextlib.contextmanager
    def doing(self, action: str, *, image: str = "") -> Iterator[None]:
        """Translate the client's errors into faults.

        Raises:
            EngineUnavailable: no answer. ImageMissing: 404 for an image. EngineRefused: any other error response.
        """
        try:
            yield
        except ImageNotFound as error:
            raise ImageMissing(image or str(error.explanation)) from error
        except APIError as error:
            if error.status_code == HTTPStatus.NOT_FOUND and image:
                raise ImageMissing(image) from error
            message = str(error.explanation or error)
            if error.is_server_error() and any(part in message for part in _SHUTDOWN_MESSAGES):
                raise EngineUnavailable(self.endpoint, f"it is stopping: {message}") from error
            raise EngineRefused(action, message) from error
        except (requests.RequestException, DockerException, OSError) as error:
            raise tls_fault(self.endpoint, error) or EngineUnavailable(self.endpoint, _reason(error)) from error

    def is_engine_container(self) -> bool:
        """Return whether this process runs in one of the engine's containers."""
        known = _OWN_CONTAINER.search(_MOUNTS.read_text(encoding="utf-8", errors="replace"))
        if known is None:
            return False
        with self.doing("inspect our own container"):
            try:
                self.api.inspect_container(known[1])
            except NotFound:
                return False
        return True

    def identity(self) -> str:
        """Return the engine's id and data directory. Before version 23 all engines of a machine have the same id.

        Two engines have different identities, unless one's machine is a copy of the other's.
        """
        with self.doing("report its identity"):
            about = self.api.info()
        return f"{about.get('ID', '')} {about.get('DockerRootDir', '')}".strip()

    def attach(self, container: str) -> AttachedStream:
        """Attach to the container's stdin, stdout and stderr."""
        with self.doing("attach to a sandbox"):
            response = self.api.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
            return AttachedStream(response)

    def restarted_since(self, container: str) -> bool:
        """Return whether the engine was restarted after this container, which has ended, was started.

        The engine keeps its last 256 events and none from before its own start. If it has fewer and the container's
        start isn't among them, it was restarted. (With live restore, the container's end must be missing as well.) If
        it has 256 events, nothing is certain, and the result is False.
        """
        with self.doing("list its events"):
            about = self.api.info()
            now = datetime.fromisoformat(str(about["SystemTime"])).timestamp()  # the engine's clock, not ours
            until = (
                f"{now + _EVENT_WINDOW_S:.9f}"  # the engine accepts fractions; the client's types only whole seconds
            )
            events = list(self.api.events(since=0, until=until, decode=True))  # type: ignore[call-overload]
        known = {event.get("Action") for event in events if event.get("Actor", {}).get("ID") == container}
        if len(events) >= _EVENTS_KEPT or "start" in known:
            return False
        return not about.get("LiveRestoreEnabled") or "die" not in known

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()


def _check_socket(base_url: str, host: str | None) -> None:
    """Connect to a Unix socket first: the SDK leaks its own socket if that fails."""
    address = host or kwargs_from_env().get("base_url") or "unix:///var/run/docker.sock"
    if base_url.startswith("http+docker") and address.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(CALL_S)
            probe.connect(address.removeprefix("unix://"))


def _client(host: str | None, version: str, tls: EngineTls | None) -> docker.DockerClient:
    """Create a client; doesn't connect yet."""
    if tls is not None:
        files = TLSConfig(client_cert=(str(tls.cert), str(tls.key)), ca_cert=str(tls.ca), verify=True)
        made = docker.DockerClient(base_url=host, version=version, timeout=CALL_S, tls=files)
    elif host is None:
        made = docker.from_env(version=version, timeout=CALL_S)
    else:
        made = docker.DockerClient(base_url=host, version=version, timeout=CALL_S)
    # Otherwise REQUESTS_CA_BUNDLE would override the configured CA, and the environment's proxies would be used.
    made.api.trust_env = False
    return made


def _reason(error: BaseException) -> str:
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__ or error
    return str(error) or type(error).__name__


class AttachedStream:
    """`connection.Stream` over a hijacked connection, whose 8-byte headers separate stdout and stderr."""

    def __init__(self, response: Any) -> None:
        self._response = response
        found: socket.socket = getattr(response, "_sock", response)
        self._socket = TlsSocket(found) if isinstance(found, ssl.SSLSocket) else found
        if isinstance(self._socket, socket.socket):
            self._socket.settimeout(CALL_S)
        self._buffer = bytearray()
        self._frame_bytes_left = 0
        self._is_stdout = False
        self._stderr = bytearray()
        self._closed = False
        self._reading = False
        self._lock = threading.Lock()
        self._wake_out, self._wake_in = socket.socketpair()

    def send(self, data: bytes) -> None:
        """Send all bytes."""
        self._socket.sendall(data)

    def receive(self, timeout_s: float) -> bytes | None:
        """Return some bytes of stdout; None on timeout, b"" at the end."""
        with self._lock:
            if self._closed:
                return b""
            self._reading = True
        try:
            return self._receive(timeout_s)
        finally:
            self._stop_reading()

    def _stop_reading(self) -> None:
        with self._lock:
            self._reading = False
            if self._closed:
                self._close_all()

    def _receive(self, timeout_s: float) -> bytes | None:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        while True:
            if not (isinstance(self._socket, TlsSocket) and self._socket.pending()):
                events = poll.poll(timeout_s * 1000)
                if not events:
                    return None
                if any(fd == self._wake_out.fileno() for fd, _ in events):
                    break
            data = self._socket.recv(1 << 18)
            if data is None:
                continue
            if not data:
                break
            if found := self._demultiplex(data):
                return found
        return b""

    def _demultiplex(self, data: bytes) -> bytes:
        self._buffer += data
        found = bytearray()
        while self._buffer:
            if self._frame_bytes_left == 0:
                if len(self._buffer) < _FRAME.size:
                    break
                kind, self._frame_bytes_left = _FRAME.unpack_from(self._buffer)
                self._is_stdout = kind == _STDOUT
                del self._buffer[: _FRAME.size]
                continue
            part = self._buffer[: self._frame_bytes_left]
            del self._buffer[: self._frame_bytes_left]
            self._frame_bytes_left -= len(part)
            if self._is_stdout:
                found += part
            else:
                self._stderr = (self._stderr + part)[-_STDERR_KEPT:]
        return bytes(found)

    def stderr_tail(self) -> str:
        """Return the tail of the runner's stderr."""
        return self._stderr.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Close the connection. Thread-safe and idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            if self._reading:
                # The reader closes the descriptors: closed during its poll, their numbers could be reused.
                self._wake_in.send(b"\0")
            else:
                self._close_all()

    def _close_all(self) -> None:
        # The SDK's response holds the connection too; without closing both, the engine keeps it open.
        for held in (getattr(self._response, "_response", None), self._response, self._wake_in, self._wake_out):
            if held is not None:
                with contextlib.suppress(OSError, ValueError):  # ValueError: http.client flushes a file that is closed
                    held.close()
