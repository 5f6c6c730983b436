"""Egress of all sandboxes of a worker: one thread with one loop, the leases of running execs, the recorder."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from codesdk.domain.network.addresses import AddressPolicy
from codesdk.domain.network.resolver import Resolve, public_and_remote, system_resolve
from codesdk.sandbox.egress.allowance import ExecAllowance, Key
from codesdk.sandbox.egress.byte_credit import ReserveBytes, unlimited
from codesdk.sandbox.egress.client_stream import ClientStream
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, OnAttempt, Reason
from codesdk.sandbox.egress.dialer import Dialer
from codesdk.sandbox.egress.multiplexer import EgressMultiplexer
from codesdk.sandbox.egress.proxy import FIRST_BYTES_S, Proxy
from codesdk.sandbox.egress.rules import EgressRules

_log = logging.getLogger(__name__)

SecretResolver = Callable[[str, str], str | None]
"""(owner, name): the value, or None. Called on a thread, once for each connection that needs it."""
RESOLVER_THREADS = 8
"""Threads for the system's resolver: a name that does not answer holds one for as long as the resolver waits."""
_END_S = 15.0
_T = TypeVar("_T")


def no_secrets(_owner: str, _name: str) -> str | None:
    """A worker without a secret store."""
    return None


class EgressService:
    """Give a `ExecAllowance` before the exec starts, end it after; a `EgressMultiplexer` for each link."""

    def __init__(
        self,
        on_attempt: OnAttempt,
        *,
        reserve_bytes: ReserveBytes = unlimited,
        secrets: SecretResolver = no_secrets,
        resolve: Resolve = system_resolve,
        policy: AddressPolicy = public_and_remote,
        tls: ssl.SSLContext | None = None,
        first_s: float = FIRST_BYTES_S,
    ) -> None:
        self._on_attempt = on_attempt
        self._reserve_bytes = reserve_bytes
        self._secrets = secrets
        self._allowances: dict[tuple[str, Key], ExecAllowance] = {}
        self._tasks: dict[tuple[str, Key], set[asyncio.Task[None]]] = {}
        self._resolver_threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="egress-resolve")
        self._recorder_thread = ThreadPoolExecutor(1, thread_name_prefix="egress-record")
        self._secret_threads = ThreadPoolExecutor(2, thread_name_prefix="egress-secret")
        dialer = Dialer(resolve, policy, self._resolver_threads, tls or ssl.create_default_context())
        self._proxy = Proxy(dialer, self.record, self._reserve_bytes_async, self._secret, first_s=first_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="egress", daemon=True)
        self._thread.start()

    # -- from any thread --------------------------------------------------------------------------------------------

    def grant(self, owner: str, key: Key, within: EgressRules, rules: EgressRules) -> ExecAllowance:
        """Let one exec reach what both sets of rules allow. Joining the same exec again gives the same lease."""

        async def give() -> ExecAllowance:
            allowance = self._allowances.setdefault((owner, key), ExecAllowance(owner, key, within, rules))
            allowance.refcount += 1
            return allowance

        return self._run(give())

    def end(self, allowance: ExecAllowance) -> None:
        """The exec is over: its connections end, and all its attempts are recorded when this returns."""
        try:
            self._run(self._end(allowance))
        except TimeoutError:
            # The exec's result is worth more than waiting on; what is left ends by itself, and is recorded then.
            _log.exception("egress of %s did not end within %g s", allowance.owner, _END_S)

    def carrier(self, owner: str, send: Callable[[bytes], None], broken: Callable[[str], None]) -> EgressMultiplexer:
        """For one link of a sandbox."""
        return EgressMultiplexer(owner, self._loop, self, send, broken)

    def close(self) -> None:
        """End everything."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)
        for threads in (self._resolver_threads, self._secret_threads, self._recorder_thread):
            threads.shutdown(wait=threads is self._recorder_thread, cancel_futures=threads is not self._recorder_thread)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_END_S)

    # -- on the loop ------------------------------------------------------------------------------------------------

    def admit(
        self, owner: str, call: str, attempt: int, client_stream: ClientStream, credential: str
    ) -> asyncio.Task[None] | None:
        """Serve a connection of that exec, if it has a lease."""
        key = (owner, (call, attempt))
        allowance = self._allowances.get(key)
        if allowance is None:
            return None
        task = self._loop.create_task(self._proxy.serve(client_stream, allowance, credential))
        tasks = self._tasks.setdefault(key, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def record(self, attempt: ConnectionAttempt) -> None:
        """Hand it to whoever keeps the records; shielded, so that the end of an exec cannot undo it."""
        await asyncio.shield(self._loop.run_in_executor(self._recorder_thread, self._on_attempt, attempt))

    async def _reserve_bytes_async(self, attempt: ConnectionAttempt, least: int) -> int:
        """By the thread that records: what was taken is known there when the connection's end comes."""
        return await asyncio.shield(
            self._loop.run_in_executor(self._recorder_thread, self._reserve_bytes, attempt, least)
        )

    async def _secret(self, owner: str, name: str) -> str | None:
        return await self._loop.run_in_executor(self._secret_threads, self._secrets, owner, name)

    async def _end(self, allowance: ExecAllowance) -> None:
        allowance.refcount -= 1
        if allowance.refcount > 0:
            return
        allowance.ended = True
        self._allowances.pop((allowance.owner, allowance.key), None)
        await self._stop(self._tasks.pop((allowance.owner, allowance.key), set()))
        if allowance.unread:
            call, attempt = allowance.key
            summary = ConnectionAttempt(
                owner=allowance.owner,
                call=call,
                attempt=attempt,
                number=0,
                phase=AttemptPhase.REFUSED,
                reason=Reason.TOO_MANY,
                detail="refused unread: far too many attempts",
                count=allowance.unread,
            )
            try:
                await self.record(summary)
            except Exception:  # noqa: BLE001 - the recorder is somebody else's; the exec is over
                _log.exception("refused egress attempts of %s could not be recorded", allowance.owner)

    async def _stop(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S / 2)

    async def _close(self) -> None:
        for allowance in list(self._allowances.values()):
            allowance.refcount = 1
            await self._end(allowance)
        mine = asyncio.current_task()
        await self._stop({task for task in asyncio.all_tasks() if task is not mine})
        await asyncio.sleep(0.01)  # the transports' own ends are posted to the loop
