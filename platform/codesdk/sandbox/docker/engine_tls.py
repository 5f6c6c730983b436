"""TLS to an engine on another machine: certificates, faults, and a socket for attached connections.

Both sides present a certificate, and the engine's is always verified against the operator's CA: a client of an engine
is root on its machine, and a server that impersonates it would get everything that tools read and write.
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
"""Send timeout: the other side must accept some bytes within it."""
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
    """The engine is on another machine, and TLS isn't configured."""

    code = "ENGINE_PLAIN"
    retryable = False
    advice_text = (
        "Set CODESDK_DOCKER_TLS_CA, CODESDK_DOCKER_TLS_CERT and CODESDK_DOCKER_TLS_KEY (or DOCKER_CERT_PATH), and start "
        "the engine with --tlsverify; see docs/how-to/use-a-remote-engine.md."
    )


class EngineCertificate(EngineUnavailable):
    """One of our certificate or key files can't be used."""

    code = "ENGINE_CERTIFICATE"
    retryable = False
    advice_text = "See docs/how-to/use-a-remote-engine.md for the files and how to create them."


class EngineUntrusted(EngineUnavailable):
    """The server at the engine's address doesn't prove that it is the engine."""

    code = "ENGINE_UNTRUSTED"
    retryable = False
    advice_text = (
        "Nothing was sent. Check that CODESDK_DOCKER_TLS_CA is the authority of the engine's certificate, and that the "
        "certificate names this host and is valid now."
    )


class EngineTls(FrozenModel):
    """Certificate files in PEM."""

    ca: Path
    """CA that must have signed the engine's certificate."""
    cert: Path
    """Our client certificate."""
    key: Path

    def check(self, endpoint: str) -> None:
        """Check that the files are usable.

        Raises:
            EngineCertificate: one is missing or isn't PEM, they don't match, or our certificate isn't valid now.
        """
        try:
            for path in (self.ca, self.cert, self.key):
                path.read_bytes()
            context = ssl.create_default_context(cafile=str(self.ca))
            context.load_cert_chain(self.cert, self.key, password=_no_password)
            ours = x509.load_pem_x509_certificate(self.cert.read_bytes())
        except OSError as error:  # includes ssl.SSLError
            where = f"{error.filename}: " if error.filename else ""
            what = error.reason if isinstance(error, ssl.SSLError) and error.reason else (error.strerror or str(error))
            raise EngineCertificate(endpoint, f"a TLS file cannot be used: {where}{what}") from error
        except ValueError as error:
            raise EngineCertificate(endpoint, f"{self.cert} is not a PEM certificate") from error
        if not ours.not_valid_before_utc <= datetime.now(UTC) <= ours.not_valid_after_utc:
            until = ours.not_valid_after_utc.date()
            raise EngineCertificate(endpoint, f"our certificate {self.cert} is not valid now (it expires {until})")


def _no_password() -> str:
    raise ValueError("the key has a password")


def find_tls(settings: Settings, host: str) -> EngineTls | None:
    """Return the checked files for this address, from the settings or Docker's own variables; None if it isn't TCP.

    `DOCKER_TLS_VERIFY` can't disable verification: with certificates, both sides are verified.

    Raises:
        EnginePlain: the engine is on another machine and no files are set.
        EngineCertificate: the files can't be used.
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
        raise EngineCertificate(host, "the CA, our certificate and its key must all be set")
    files = EngineTls(ca=ca, cert=cert, key=key)
    files.check(host)
    return files


def _parts(host: str) -> SplitResult:
    """Parse the address as the Docker client does: one without a scheme is TCP."""
    return urlsplit(host if not host or "://" in host else f"tcp://{host}")


def over_network(host: str) -> bool:
    """Return whether the address is a TCP port, on this machine or another."""
    return _parts(host).scheme in ("tcp", "http", "https")


def check_plain(host: str) -> None:
    """Check that the address may be used without TLS: not TCP, or a loopback port of this machine.

    Raises:
        EnginePlain: it may not.
    """
    if over_network(host) and (_parts(host).scheme == "https" or not _is_loopback(_parts(host).hostname or "")):
        raise EnginePlain(host, "it is on the network, where a connection without TLS is refused")


def _is_loopback(name: str) -> bool:
    if name in ("localhost", ""):  # the client's default is 127.0.0.1
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(name).is_loopback
    return False  # a name may resolve to any address


def tls_fault(endpoint: str, error: BaseException) -> EngineUnavailable | None:
    """Return the fault for a TLS failure; None if the error isn't one."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return EngineUntrusted(endpoint, f"its certificate is invalid: {cause.verify_message}")
        if isinstance(cause, ssl.SSLError):
            reason = str(cause.reason or cause)
            if any(word in reason for word in _PEER_REJECTIONS):
                words = reason.replace("_", " ").lower()
                return EngineCertificate(endpoint, f"it rejects our certificate ({words})")
            if any(word in reason for word in _NOT_TLS_ERRORS):
                return EngineUntrusted(endpoint, "the server there does not use TLS")
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

    OpenSSL doesn't support both at once on one connection, so each step takes a lock and never blocks.
    """

    def __init__(self, wrapped: ssl.SSLSocket) -> None:
        self._wrapped = wrapped
        self._lock = threading.Lock()
        wrapped.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        return self._wrapped.fileno()

    def pending(self) -> bool:
        """Return whether decrypted bytes are buffered, which poll doesn't report."""
        with self._lock:
            return self._wrapped.pending() > 0

    def recv(self, most: int) -> bytes | None:
        """Return some bytes; b"" at the end; None if no complete record has arrived."""
        try:
            with self._lock:
                return self._wrapped.recv(most)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def sendall(self, data: bytes) -> None:
        """Send all bytes.

        Raises:
            TimeoutError: the other side accepts no bytes.
            OSError: the connection is closed.
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
                raise TimeoutError("the engine accepts no bytes")
            poll = select.poll()
            poll.register(self._wrapped, wanted)
            poll.poll(_POLL_MS)

    def shutdown(self, how: int) -> None:
        """Shut down the connection below TLS: `SSLSocket.shutdown` would drop the TLS layer that the reader uses."""
        socket.socket.shutdown(self._wrapped, how)
