"""An engine on another machine, over TLS: its certificates, what their failures mean, and an attached connection.

Both sides show a certificate, and ours is always compared with the authority that the operator names: whoever speaks to an
engine is root on its machine, and whoever answers in its place gets what tools read and write.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from cryptography import x509

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.port.faults import EngineUnavailable
from codesdk.settings import Settings
from codesdk.settings.docker_variables import certificates

_SEND_S = 60.0
"""Seconds in which the other side must take something."""
_PIECE = 64 * 1024
_POLL_MS = 100
_PEER_REJECTIONS = (
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_REQUIRED",
    "CERTIFICATE_UNKNOWN",
    "ACCESS_DENIED",
)
_NOT_TLS_ERRORS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE")


class EnginePlain(EngineUnavailable):
    """The engine is on another machine, and no TLS is set up."""

    code = "ENGINE_PLAIN"
    retryable = False

    def __init__(self, endpoint: str) -> None:
        super().__init__(endpoint, "it is over the network, and nothing is spoken there without TLS")
        self.advice_text = (
            "Set CODESDK_DOCKER_TLS_CA, CODESDK_DOCKER_TLS_CERT and CODESDK_DOCKER_TLS_KEY (or DOCKER_CERT_PATH), and start "
            "the engine with --tlsverify; docs/how-to/use-a-remote-engine.md shows it."
        )


class EngineCertificate(EngineUnavailable):
    """A certificate or key of ours cannot be used."""

    code = "ENGINE_CERTIFICATE"
    retryable = False

    def __init__(self, endpoint: str, what: str) -> None:
        super().__init__(endpoint, what)
        self.advice_text = "docs/how-to/use-a-remote-engine.md says which files there must be, and how they are made."


class EngineUntrusted(EngineUnavailable):
    """What answers does not show that it is the engine."""

    code = "ENGINE_UNTRUSTED"
    retryable = False

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(endpoint, why)
        self.advice_text = (
            "Nothing was sent. Look whether CODESDK_DOCKER_TLS_CA is the authority of that engine's certificate, and whether "
            "the certificate names the host that is asked for and is in its time."
        )


class EngineTls(FrozenModel):
    """Files in PEM."""

    ca: Path
    """The authority that the engine's certificate must come from."""
    cert: Path
    """Ours, which the engine asks for."""
    key: Path

    def check(self, endpoint: str) -> None:
        """Let usable files pass.

        Raises:
            EngineCertificate: one is missing or no PEM, they do not belong together, or ours is out of its time.
        """
        try:
            for path in (self.ca, self.cert, self.key):
                path.read_bytes()
            context = ssl.create_default_context(cafile=str(self.ca))
            context.load_cert_chain(self.cert, self.key, password=_no_password)
            ours = x509.load_pem_x509_certificate(self.cert.read_bytes())
        except OSError as error:  # ssl's own errors are some
            where = f"{error.filename}: " if error.filename else ""
            what = error.reason if isinstance(error, ssl.SSLError) and error.reason else (error.strerror or str(error))
            raise EngineCertificate(endpoint, f"a file for TLS cannot be used: {where}{what}") from error
        except ValueError as error:
            raise EngineCertificate(endpoint, f"{self.cert} is no certificate in PEM") from error
        if not ours.not_valid_before_utc <= datetime.now(UTC) <= ours.not_valid_after_utc:
            until = ours.not_valid_after_utc.date()
            raise EngineCertificate(endpoint, f"our certificate {self.cert} is out of its time (it ends {until})")


def _no_password() -> str:
    raise ValueError("the key has a password")


def find_tls(settings: Settings, host: str) -> EngineTls | None:
    """The files for that address, checked: the settings', else Docker's own variables'. None where there is no network.

    `DOCKER_TLS_VERIFY` turns nothing off: where there are certificates, both are verified.

    Raises:
        EnginePlain: it is on another machine and there are none.
        EngineCertificate: they cannot be used.
    """
    if not over_network(host):
        return None
    named = (settings.docker_tls_ca, settings.docker_tls_cert, settings.docker_tls_key)
    if not any(named) and (directory := certificates()) is not None:
        named = (directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
    ca, cert, key = named
    if ca is None and cert is None and key is None:
        check_plain(host)
        return None
    if ca is None or cert is None or key is None:
        raise EngineCertificate(host, "of the authority, our certificate and its key, not all are named")
    files = EngineTls(ca=ca, cert=cert, key=key)
    files.check(host)
    return files


def _parts(host: str) -> SplitResult:
    """The address, read as the Docker client reads it: one without a scheme is a TCP port."""
    return urlsplit(host if not host or "://" in host else f"tcp://{host}")


def over_network(host: str) -> bool:
    """Whether the address is a TCP port, of whatever machine."""
    return _parts(host).scheme in ("tcp", "http", "https")


def check_plain(host: str) -> None:
    """Let an address pass that may be spoken to without TLS: no port, or one of this machine's loopback.

    Raises:
        EnginePlain: it may not.
    """
    if over_network(host) and (_parts(host).scheme == "https" or not _is_loopback(_parts(host).hostname or "")):
        raise EnginePlain(host)


def _is_loopback(name: str) -> bool:
    if name in ("localhost", ""):  # without a name the client takes 127.0.0.1
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return False  # a name may lead anywhere


def tls_fault(endpoint: str, error: BaseException) -> EngineUnavailable | None:
    """What a failure of TLS means; None where it is none."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return EngineUntrusted(endpoint, f"its certificate is not what it must be: {cause.verify_message}")
        if isinstance(cause, ssl.SSLError):
            reason = str(cause.reason or cause)
            if any(word in reason for word in _PEER_REJECTIONS):
                words = reason.replace("_", " ").lower()
                return EngineCertificate(endpoint, f"it does not take our certificate ({words})")
            if any(word in reason for word in _NOT_TLS_ERRORS):
                return EngineUntrusted(endpoint, "what answers there does not speak TLS")
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        cause = waiting.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [cause.__cause__, cause.__context__, getattr(cause, "reason", None)]
        waiting += [part for part in cause.args if isinstance(part, BaseException)]
        waiting = [each for each in waiting if isinstance(each, BaseException)]


class TlsSocket:
    """A connected TLS socket that one thread may read and another write.

    OpenSSL does not take both at once on one connection: each step is taken under a lock and never blocks.
    """

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._wrapped = wrapped
        self._lock = threading.Lock()
        wrapped.setblocking(False)

    def fileno(self) -> int:
        """For a poll."""
        return self._wrapped.fileno()

    def pending(self) -> bool:
        """Whether there is something to read that no poll would tell of."""
        with self._lock:
            return self._wrapped.pending() > 0

    def recv(self, most: int) -> bytes | None:
        """Some bytes; b"" at the end; None where only a part of a record, or nothing for us, has come."""
        try:
            with self._lock:
                return self._wrapped.recv(most)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def sendall(self, data: bytes) -> None:
        """All of it.

        Raises:
            TimeoutError: the other side takes nothing.
            OSError: it is gone.
        """
        view = memoryview(data)
        deadline = time.monotonic() + _SEND_S
        while view:
            wanted = select.POLLOUT
            try:
                with self._lock:
                    sent = self._wrapped.send(view[:_PIECE])
                view = view[sent:]
                deadline = time.monotonic() + _SEND_S
                continue
            except ssl.SSLWantWriteError:
                pass
            except ssl.SSLWantReadError:
                wanted = select.POLLIN
            if time.monotonic() > deadline:
                raise TimeoutError("the engine takes nothing")
            poll = select.poll()
            poll.register(self._wrapped, wanted)
            poll.poll(_POLL_MS)

    def shutdown(self, how: int) -> None:
        """End the connection below TLS: `SSLSocket.shutdown` would take the layer from under whoever reads."""
        socket.socket.shutdown(self._wrapped, how)
