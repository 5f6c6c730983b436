"""The proxy: one connection of a tool, from its first bytes to the record of its end."""

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
from codesdk.sandbox.egress.allowance import ExecAllowance
from codesdk.sandbox.egress.byte_credit import ByteCredit
from codesdk.sandbox.egress.client_hello import ClientHello, ClientHelloParser, NotTls
from codesdk.sandbox.egress.client_stream import ClientDisconnected, ClientStream
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, Reason
from codesdk.sandbox.egress.dialer import Dialer, Upstream
from codesdk.sandbox.egress.http_body import Body
from codesdk.sandbox.egress.http_head import BadHead, HostDiffers, Request
from codesdk.sandbox.egress.refusal import Refusal
from codesdk.sandbox.egress.relay import ByteCounts, Relay
from codesdk.sandbox.egress.rules import HTTP_PORT, HTTPS_PORT, EgressRule, Protocol

_log = logging.getLogger(__name__)

Record = Callable[[ConnectionAttempt], Awaitable[None]]
ReserveMore = Callable[[ConnectionAttempt, int], Awaitable[int]]
"""See `OnShort`."""
SecretValue = Callable[[str, str], Awaitable[str | None]]
"""(owner, name): the value of a secret that this sandbox's tenant has under that name; None where there is none."""

FIRST_BYTES_S = 10.0
"""Seconds that a tool has for a whole request head, and again for a whole ClientHello."""
_HEADER_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")


@dataclass
class ProxyConnection:
    """What is known of one connection so far."""

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
        """The record of this moment."""
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
    """Decides and carries out; keeps nothing between connections but what the lease counts."""

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
        """One connection, to its recorded end; `credential` is what the tool must show.

        Raises nothing but the cancellation that the end of the exec causes.
        """
        number = allowance.attempt()
        if number is None:
            client_stream.reset()
            return
        visit = ProxyConnection(client_stream, allowance, credential, number, time.monotonic())
        refusal = Refusal(Reason.DONE)
        try:
            await self._serve(visit)
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
            await self._finish(visit, refusal)

    async def _finish(self, visit: ProxyConnection, refusal: Refusal) -> None:
        if visit.holds_slot:
            visit.allowance.give_back()
        phase = AttemptPhase.CLOSED if visit.opened else AttemptPhase.REFUSED
        try:
            await self._record(visit.attempt(phase, refusal.reason, refusal.detail))
        except Exception:  # noqa: BLE001 - the recorder is somebody else's, and may raise anything
            # What cannot be recorded does not go on: this exec reaches nothing any more.
            _log.exception("an egress attempt of %s could not be recorded; its egress ends", visit.allowance.owner)
            visit.allowance.ended = True
        if refusal.reason is not Reason.DONE:
            await self._send_refusal(visit, refusal)

    async def _send_refusal(self, visit: ProxyConnection, refusal: Refusal) -> None:
        try:
            if visit.can_answer and refusal.reason not in (Reason.BROKEN, Reason.EXEC_ENDED):
                async with asyncio.timeout(self._first_s):
                    await visit.client_stream.write(refusal.answer())
                visit.client_stream.finish()
                # The tool reads the answer before it sees an end: a reset would throw the answer away.
                async with asyncio.timeout(1.0):
                    while await visit.client_stream.read():
                        pass
        except (ClientDisconnected, TimeoutError):
            pass  # it does not want to know
        finally:
            visit.client_stream.reset()

    async def _serve(self, visit: ProxyConnection) -> None:
        head, rest = await self._head(visit.client_stream)
        try:
            request = http_head.request(head)
        except HostDiffers as error:
            raise Refusal(Reason.HOST_DIFFERS, str(error)) from error
        except BadHead as error:
            raise Refusal(Reason.BAD_REQUEST, str(error)) from error
        visit.method = request.method[:32]
        visit.host, visit.port = request.target.host, request.target.port
        if not _has_credential(request, visit.credential):
            raise Refusal(Reason.CREDENTIAL, "the proxy URL of this exec's environment carries a credential")
        protocol = Protocol.TLS if request.path is None else Protocol.HTTP
        rule = visit.allowance.find(visit.host, visit.port, protocol)
        if rule is None:
            raise Refusal(Reason.NOT_ALLOWED, _not_allowed(visit, protocol))
        visit.rule = rule.name
        full = visit.allowance.open()
        if full is not None:
            raise Refusal(full, "this exec has as many connections as it may have")
        visit.holds_slot = True
        if request.path is None:
            await self._connect(visit, request, rule, rest)
        else:
            await self._forward(visit, request, rule, rest)

    async def _head(self, client_stream: ClientStream) -> tuple[bytes, bytes]:
        seen = bytearray()
        try:
            async with asyncio.timeout(self._first_s):
                while (end := seen.find(http_head.END)) < 0:
                    if len(seen) > http_head.MAX_HEAD:
                        raise Refusal(Reason.BAD_REQUEST, f"a head of more than {http_head.MAX_HEAD} bytes")
                    data = await client_stream.read()
                    if not data:
                        raise Refusal(Reason.BROKEN, "it ended before it had asked for anything")
                    seen += data
        except TimeoutError as error:
            raise Refusal(Reason.SLOW, f"no complete request within {self._first_s:g} s") from error
        end += len(http_head.END)
        if end > http_head.MAX_HEAD:
            raise Refusal(Reason.BAD_REQUEST, f"a head of more than {http_head.MAX_HEAD} bytes")
        return bytes(seen[:end]), bytes(seen[end:])

    # -- TLS --------------------------------------------------------------------------------------------------------

    async def _connect(self, visit: ProxyConnection, request: Request, rule: EgressRule, rest: bytes) -> None:
        if request.all("transfer-encoding") or request.all("content-length") not in ([], ["0"]):
            raise Refusal(Reason.BAD_REQUEST, "CONNECT with a body")
        upstream = await self._dial(visit, visit.port, tls=False)
        try:
            await visit.client_stream.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            visit.can_answer = False
            first = await self._client_hello(visit, rule, rest)
            await self._open(visit)
            await self._relay(visit, upstream).tunnel(first)
        finally:
            upstream.close()

    async def _client_hello(self, visit: ProxyConnection, rule: EgressRule, rest: bytes) -> bytes:
        collector = ClientHelloParser()
        try:
            async with asyncio.timeout(self._first_s):
                hello = collector.feed(rest)
                while hello is None:
                    data = await visit.client_stream.read()
                    if not data:
                        raise Refusal(Reason.BROKEN, "it ended before its ClientHello was complete")
                    hello = collector.feed(data)
        except NotTls as error:
            raise Refusal(Reason.NOT_TLS, str(error)) from error
        except TimeoutError as error:
            raise Refusal(Reason.SLOW, f"no complete ClientHello within {self._first_s:g} s") from error
        _check_hello(hello, visit.host, rule)
        return bytes(collector.seen)

    # -- plain HTTP ---------------------------------------------------------------------------------------------------

    async def _forward(self, visit: ProxyConnection, request: Request, rule: EgressRule, rest: bytes) -> None:
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
            value = await self._secret_value(visit.allowance.owner, secret.secret)
            fields = http_head.set_field(fields, secret.header, secret.prefix + value)
        visit.secrets = tuple(item.secret for item in rule.inject)
        fields = http_head.set_field(fields, "Connection", "close")
        tls = rule.upstream == "https"
        port, usual = (rule.upstream_port, HTTPS_PORT) if tls else (visit.port, HTTP_PORT)
        name = url_host(visit.host)
        head = http_head.write_request(request, name if port == usual else f"{name}:{port}", fields)
        upstream = await self._dial(visit, port, tls=tls)
        relay = self._relay(visit, upstream)
        try:
            await self._open(visit)
            if wants_more and not body.over:
                await visit.client_stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await relay.exchange(head, body, rest, request.method)
        finally:
            visit.can_answer = not relay.answered
            upstream.close()

    async def _secret_value(self, owner: str, name: str) -> str:
        try:
            value = await self._secret(owner, name)
        except Exception as error:
            _log.exception("the secret %s could not be had", name)
            raise Refusal(Reason.SECRET_UNAVAILABLE, f"the secret {name} could not be had") from error
        if value is None or not _HEADER_VALUE.fullmatch(value):
            raise Refusal(Reason.SECRET_UNAVAILABLE, f"there is no secret {name} that fits into a header")
        return value

    # -- both -----------------------------------------------------------------------------------------------------------

    async def _dial(self, visit: ProxyConnection, port: int, *, tls: bool) -> Upstream:
        upstream = await self._dialer.dial(visit.host, port, tls=tls)
        visit.address = str(upstream.address)
        return upstream

    def _relay(self, visit: ProxyConnection, upstream: Upstream) -> Relay:
        credit = ByteCredit(partial(self._reserve, visit))
        return Relay(visit.client_stream, upstream, visit.allowance, visit.counts, credit)

    async def _reserve(self, visit: ProxyConnection, least: int) -> int:
        """Bytes that the connection may move beyond those it could; what cannot be counted does not pass."""
        try:
            return await self._reserve_more(visit.attempt(AttemptPhase.OPENED), least)
        except Refusal:
            raise
        except Exception as error:
            _log.exception("bytes of an egress connection of %s could not be counted; it ends", visit.allowance.owner)
            raise Refusal(Reason.INTERNAL, "its bytes could not be counted") from error

    async def _open(self, visit: ProxyConnection) -> None:
        """Recorded before the first byte passes; if that fails, none does."""
        if visit.allowance.ended:
            raise Refusal(Reason.EXEC_ENDED)
        try:
            await self._record(visit.attempt(AttemptPhase.OPENED))
        except asyncio.CancelledError:
            visit.opened = True  # the exec ended meanwhile; the record is written all the same
            raise
        except Refusal:
            raise  # it was judged, and is recorded as what it is
        except Exception as error:
            _log.exception("an egress connection of %s could not be recorded; nothing passes", visit.allowance.owner)
            visit.allowance.ended = True
            raise Refusal(Reason.INTERNAL, "the attempt could not be recorded") from error
        visit.opened = True


def _has_credential(request: Request, credential: str) -> bool:
    """Whether Proxy-Authorization carries the exec's credential as its password."""
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
        raise Refusal(Reason.SNI_DIFFERS, f"the ClientHello names no proper host: {error}") from error
    if name != host:
        raise Refusal(Reason.SNI_DIFFERS, f"CONNECT was for {host}, the ClientHello is for {name}")


def _not_allowed(visit: ProxyConnection, protocol: Protocol) -> str:
    asked = f"{protocol}://{visit.host}:{visit.port}"
    allowed = [rule.name for rule in visit.allowance.rules.rules]
    shown = ", ".join(allowed[:10]) + (", …" if len(allowed) > 10 else "")  # noqa: PLR2004 - what fits a line
    return f"{asked} is not allowed here; allowed: {shown or 'nothing'}{_secret_hint(visit, protocol)}"


def _secret_hint(visit: ProxyConnection, protocol: Protocol) -> str:
    """A tool that asks for TLS of its own where a secret is to be added: nothing can be added to that."""
    if protocol is not Protocol.TLS:
        return ""
    found = visit.allowance.find(visit.host, HTTP_PORT, Protocol.HTTP)
    return f". A secret is added to http://{visit.host}/, which goes out over TLS" if found and found.inject else ""
