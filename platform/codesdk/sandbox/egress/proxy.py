"""The egress proxy: serves one connection of a tool, from its request to the record of its end."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from codesdk.domain.network.hostnames import InvalidHostname, canonical_host, url_host
from codesdk.sandbox.egress import http_head
from codesdk.sandbox.egress.client_hello import ClientHello, ClientHelloParser, NotTls
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, Reason, Refusal
from codesdk.sandbox.egress.dialer import Dialer, Upstream
from codesdk.sandbox.egress.exec_allowance import ExecAllowance
from codesdk.sandbox.egress.http_body import Body
from codesdk.sandbox.egress.http_head import BadHead, HostDiffers, Request
from codesdk.sandbox.egress.multiplexer import ClientDisconnected, ClientStream
from codesdk.sandbox.egress.relay import ByteCounts, ByteCredit, Relay
from codesdk.sandbox.egress.rules import HTTP_PORT, HTTPS_PORT, EgressRule, Protocol

_log = logging.getLogger(__name__)

Record = Callable[[ConnectionAttempt], Awaitable[None]]
ReserveMore = Callable[[ConnectionAttempt, int], Awaitable[int]]
"""See `relay.ReserveBytes`."""
SecretValue = Callable[[str, str], Awaitable[str | None]]
"""(owner, name): the named secret of the sandbox's tenant; None if there is none."""

FIRST_BYTES_S = 10.0
"""Seconds for a tool to send its request head, and again for its ClientHello."""
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


@dataclass
class ProxyConnection:
    """The state of one connection."""

    client_stream: ClientStream
    allowance: ExecAllowance
    credential: str
    number: int
    started: float
    method: str = ""
    host: str = ""
    port: int = 0
    rule: str = ""
    address: str = ""
    secrets: tuple[str, ...] = ()
    opened: bool = False
    holds_slot: bool = False
    can_answer: bool = True
    counts: ByteCounts = field(default_factory=ByteCounts)

    def attempt(self, phase: AttemptPhase, reason: Reason = Reason.DONE, detail: str = "") -> ConnectionAttempt:
        """A record of the current state."""
        call, attempt = self.allowance.key
        return ConnectionAttempt(
            owner=self.allowance.owner,
            call=call,
            attempt=attempt,
            number=self.number,
            phase=phase,
            reason=reason,
            detail=detail.encode("ascii", "backslashreplace").decode("ascii"),
            method=self.method,
            host=self.host,
            port=self.port,
            rule=self.rule,
            address=self.address,
            secrets=self.secrets,
            bytes_up=self.counts.up,
            bytes_down=self.counts.down,
            duration_s=round(time.monotonic() - self.started, 6),
        )


class Proxy:
    """Decides on connections and relays them. State between connections is only in the allowances."""

    def __init__(
        self,
        dialer: Dialer,
        record: Record,
        reserve_more: ReserveMore,
        secret: SecretValue,
        *,
        first_s: float = FIRST_BYTES_S,
    ) -> None:
        self._dialer = dialer
        self._record = record
        self._reserve_more = reserve_more
        self._secret = secret
        self._first_s = first_s

    async def serve(self, client_stream: ClientStream, allowance: ExecAllowance, credential: str) -> None:
        """Serve one connection to its recorded end. `credential`: the proxy password that the tool must send.

        Raises only the cancellation at the end of the exec.
        """
        number = allowance.attempt()
        if number is None:
            client_stream.reset()
            return
        connection = ProxyConnection(client_stream, allowance, credential, number, time.monotonic())
        refusal = Refusal(Reason.DONE)
        try:
            await self._serve(connection)
        except Refusal as found:
            refusal = found
        except (ClientDisconnected, OSError) as error:
            refusal = Refusal(Reason.BROKEN, str(error))
        except asyncio.CancelledError:
            refusal = Refusal(Reason.EXEC_ENDED)
            raise
        except Exception:  # noqa: BLE001 - a defect must not let anything through, nor end the proxy; the log has it
            _log.exception("egress of %s failed; the connection was ended", allowance.owner)
            refusal = Refusal(Reason.INTERNAL)
        finally:
            await self._finish(connection, refusal)

    async def _finish(self, connection: ProxyConnection, refusal: Refusal) -> None:
        if connection.holds_slot:
            connection.allowance.give_back()
        phase = AttemptPhase.CLOSED if connection.opened else AttemptPhase.REFUSED
        try:
            await self._record(connection.attempt(phase, refusal.reason, refusal.detail))
        except Exception:  # noqa: BLE001 - the recorder is somebody else's, and may raise anything
            # Without a record there is no egress: end this exec's.
            _log.exception("an egress attempt of %s could not be recorded; its egress ends", connection.allowance.owner)
            connection.allowance.ended = True
        if refusal.reason is not Reason.DONE:
            await self._send_refusal(connection, refusal)

    async def _send_refusal(self, connection: ProxyConnection, refusal: Refusal) -> None:
        try:
            if connection.can_answer and refusal.reason not in (Reason.BROKEN, Reason.EXEC_ENDED):
                async with asyncio.timeout(self._first_s):
                    await connection.client_stream.write(refusal.answer())
                connection.client_stream.finish()
                # Let the tool read the answer: a reset would discard it.
                async with asyncio.timeout(1.0):
                    while await connection.client_stream.read():
                        pass
        except (ClientDisconnected, TimeoutError):
            pass  # the tool is gone
        finally:
            connection.client_stream.reset()

    async def _serve(self, connection: ProxyConnection) -> None:
        head, rest = await self._head(connection.client_stream)
        try:
            request = http_head.request(head)
        except HostDiffers as error:
            raise Refusal(Reason.HOST_DIFFERS, str(error)) from error
        except BadHead as error:
            raise Refusal(Reason.BAD_REQUEST, str(error)) from error
        connection.method = request.method[:32]
        connection.host, connection.port = request.target.host, request.target.port
        if not _has_credential(request, connection.credential):
            raise Refusal(Reason.CREDENTIAL, "the proxy URL of this exec's environment carries a credential")
        protocol = Protocol.TLS if request.path is None else Protocol.HTTP
        rule = connection.allowance.find(connection.host, connection.port, protocol)
        if rule is None:
            raise Refusal(Reason.NOT_ALLOWED, _not_allowed(connection, protocol))
        connection.rule = rule.name
        full = connection.allowance.open()
        if full is not None:
            raise Refusal(full, "this exec has reached its limit of connections")
        connection.holds_slot = True
        if request.path is None:
            await self._connect(connection, request, rule, rest)
        else:
            await self._forward(connection, request, rule, rest)

    async def _head(self, client_stream: ClientStream) -> tuple[bytes, bytes]:
        seen = bytearray()
        try:
            async with asyncio.timeout(self._first_s):
                while (end := seen.find(http_head.END)) < 0:
                    if len(seen) > http_head.MAX_HEAD:
                        raise Refusal(Reason.BAD_REQUEST, f"a head of more than {http_head.MAX_HEAD} bytes")
                    data = await client_stream.read()
                    if not data:
                        raise Refusal(Reason.BROKEN, "the connection ended before a request")
                    seen += data
        except TimeoutError as error:
            raise Refusal(Reason.SLOW, f"no complete request within {self._first_s:g} s") from error
        end += len(http_head.END)
        if end > http_head.MAX_HEAD:
            raise Refusal(Reason.BAD_REQUEST, f"a head of more than {http_head.MAX_HEAD} bytes")
        return bytes(seen[:end]), bytes(seen[end:])

    # -- TLS --------------------------------------------------------------------------------------------------------

    async def _connect(self, connection: ProxyConnection, request: Request, rule: EgressRule, rest: bytes) -> None:
        if request.all("transfer-encoding") or request.all("content-length") not in ([], ["0"]):
            raise Refusal(Reason.BAD_REQUEST, "CONNECT with a body")
        upstream = await self._dial(connection, connection.port, tls=False)
        try:
            await connection.client_stream.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            connection.can_answer = False
            first = await self._client_hello(connection, rule, rest)
            await self._open(connection)
            await self._relay(connection, upstream).tunnel(first)
        finally:
            upstream.close()

    async def _client_hello(self, connection: ProxyConnection, rule: EgressRule, rest: bytes) -> bytes:
        collector = ClientHelloParser()
        try:
            async with asyncio.timeout(self._first_s):
                hello = collector.feed(rest)
                while hello is None:
                    data = await connection.client_stream.read()
                    if not data:
                        raise Refusal(Reason.BROKEN, "the connection ended before a complete ClientHello")
                    hello = collector.feed(data)
        except NotTls as error:
            raise Refusal(Reason.NOT_TLS, str(error)) from error
        except TimeoutError as error:
            raise Refusal(Reason.SLOW, f"no complete ClientHello within {self._first_s:g} s") from error
        _check_hello(hello, connection.host, rule)
        return bytes(collector.seen)

    # -- plain HTTP ---------------------------------------------------------------------------------------------------

    async def _forward(self, connection: ProxyConnection, request: Request, rule: EgressRule, rest: bytes) -> None:
        try:
            body = Body(http_head.request_framing(request))
            fields = http_head.forwarded(request)
        except BadHead as error:
            raise Refusal(Reason.BAD_REQUEST, str(error)) from error
        wants_more = any(value.lower() == "100-continue" for value in request.all("expect"))
        fields = tuple((key, value) for key, value in fields if key.lower() != "expect")
        if request.all("transfer-encoding"):
            fields = http_head.set_field(fields, "Transfer-Encoding", "chunked")
        for secret in rule.inject:
            value = await self._secret_value(connection.allowance.owner, secret.secret)
            fields = http_head.set_field(fields, secret.header, secret.prefix + value)
        connection.secrets = tuple(item.secret for item in rule.inject)
        fields = http_head.set_field(fields, "Connection", "close")
        tls = rule.upstream == "https"
        port, usual = (rule.upstream_port, HTTPS_PORT) if tls else (connection.port, HTTP_PORT)
        name = url_host(connection.host)
        head = http_head.write_request(request, name if port == usual else f"{name}:{port}", fields)
        upstream = await self._dial(connection, port, tls=tls)
        relay = self._relay(connection, upstream)
        try:
            await self._open(connection)
            if wants_more and not body.over:
                await connection.client_stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await relay.exchange(head, body, rest, request.method)
        finally:
            connection.can_answer = not relay.answered
            upstream.close()

    async def _secret_value(self, owner: str, name: str) -> str:
        try:
            value = await self._secret(owner, name)
        except Exception as error:
            _log.exception("the secret %s could not be read", name)
            raise Refusal(Reason.SECRET_UNAVAILABLE, f"the secret {name} could not be read") from error
        if value is None or not _HEADER_VALUE.fullmatch(value):
            raise Refusal(Reason.SECRET_UNAVAILABLE, f"there is no secret {name}, or it is not a valid header value")
        return value

    # -- both -----------------------------------------------------------------------------------------------------------

    async def _dial(self, connection: ProxyConnection, port: int, *, tls: bool) -> Upstream:
        upstream = await self._dialer.dial(connection.host, port, tls=tls)
        connection.address = str(upstream.address)
        return upstream

    def _relay(self, connection: ProxyConnection, upstream: Upstream) -> Relay:
        credit = ByteCredit(partial(self._reserve, connection))
        return Relay(connection.client_stream, upstream, connection.allowance, connection.counts, credit)

    async def _reserve(self, connection: ProxyConnection, least: int) -> int:
        """Reserve more bytes for the connection; if that fails, none pass."""
        try:
            return await self._reserve_more(connection.attempt(AttemptPhase.OPENED), least)
        except Refusal:
            raise
        except Exception as error:
            _log.exception(
                "bytes of an egress connection of %s could not be counted; it ends", connection.allowance.owner
            )
            raise Refusal(Reason.INTERNAL, "its bytes could not be counted") from error

    async def _open(self, connection: ProxyConnection) -> None:
        """Record the connection before the first byte passes; if that fails, none do."""
        if connection.allowance.ended:
            raise Refusal(Reason.EXEC_ENDED)
        try:
            await self._record(connection.attempt(AttemptPhase.OPENED))
        except asyncio.CancelledError:
            connection.opened = True  # the exec ended meanwhile, but the record is still written
            raise
        except Refusal:
            raise  # recorded with its own reason
        except Exception as error:
            _log.exception(
                "an egress connection of %s could not be recorded; nothing passes", connection.allowance.owner
            )
            connection.allowance.ended = True
            raise Refusal(Reason.INTERNAL, "the attempt could not be recorded") from error
        connection.opened = True


def _has_credential(request: Request, credential: str) -> bool:
    """Whether Proxy-Authorization has the exec's credential as its password."""
    found = request.all("proxy-authorization")
    if len(found) != 1:
        return False
    scheme, _, value = found[0].partition(" ")
    try:
        password = base64.b64decode(value.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        return False
    return scheme.lower() == "basic" and hmac.compare_digest(password, credential.encode())


def _check_hello(hello: ClientHello, host: str, rule: EgressRule) -> None:
    if hello.encrypted and not rule.allow_ech:
        raise Refusal(Reason.ENCRYPTED_HELLO, "the ClientHello is encrypted: its host cannot be seen")
    if hello.server_name is None:
        if not rule.allow_missing_sni:
            raise Refusal(Reason.SNI_MISSING, "the ClientHello names no host")
        return
    try:
        name = canonical_host(hello.server_name)
    except InvalidHostname as error:
        raise Refusal(Reason.SNI_DIFFERS, f"the ClientHello names no valid host: {error}") from error
    if name != host:
        raise Refusal(Reason.SNI_DIFFERS, f"CONNECT was for {host}, the ClientHello is for {name}")


def _not_allowed(connection: ProxyConnection, protocol: Protocol) -> str:
    asked = f"{protocol}://{connection.host}:{connection.port}"
    allowed = [rule.name for rule in connection.allowance.rules.rules]
    shown = ", ".join(allowed[:10]) + (", …" if len(allowed) > 10 else "")  # noqa: PLR2004 - what fits a line
    return f"{asked} is not allowed here; allowed: {shown or 'nothing'}{_secret_hint(connection, protocol)}"


def _secret_hint(connection: ProxyConnection, protocol: Protocol) -> str:
    """Advice for a tool that uses TLS itself where a secret would be injected."""
    if protocol is not Protocol.TLS:
        return ""
    found = connection.allowance.find(connection.host, HTTP_PORT, Protocol.HTTP)
    return (
        f". A secret is added to http://{connection.host}/, which goes out over TLS" if found and found.inject else ""
    )
