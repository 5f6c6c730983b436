"""Egress of all sandboxes of a worker: the proxy's event loop thread, the allowances of execs, and the recorder."""

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
from codesdk.sandbox.egress.connection_attempt import AttemptPhase, ConnectionAttempt, OnAttempt, Reason
from codesdk.sandbox.egress.dialer import Dialer
from codesdk.sandbox.egress.exec_allowance import ExecAllowance, Key
from codesdk.sandbox.egress.multiplexer import ClientStream, EgressMultiplexer
from codesdk.sandbox.egress.proxy import FIRST_BYTES_S, Proxy
from codesdk.sandbox.egress.relay import ReserveBytes, unlimited
from codesdk.sandbox.egress.rules import EgressRules

_log = logging.getLogger(__name__)

SecretResolver = Callable[[str, str], str | None]
"""(owner, name): the value, or None. Called on a thread, once per connection that needs it."""
RESOLVER_THREADS = 8
"""Threads for the system resolver; a name that doesn't resolve blocks one until the resolver times out."""
_END_S = 15.0
_T = TypeVar("_T")


def no_secrets(_owner: str, _name: str) -> str | None:
    """Resolver of a worker without secrets."""
    return None


class EgressService:
    """Grants an `ExecAllowance` per exec, and an `EgressMultiplexer` per sandbox link."""

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
        """Allow an exec what both sets of rules allow. The same exec again gets the same allowance."""

        async def give() -> ExecAllowance:
            allowance = self._allowances.setdefault((owner, key), ExecAllowance(owner, key, within, rules))
            allowance.refcount += 1
            return allowance

        return self._run(give())

    def end(self, allowance: ExecAllowance) -> None:
        """End the exec's connections; when this returns, all its attempts are recorded."""
        try:
            self._run(self._end(allowance))
        except TimeoutError:
            # Don't delay the exec's result: the rest ends by itself, and is recorded then.
            _log.exception("egress of %s did not end within %g s", allowance.owner, _END_S)

    def multiplexer(
        self, owner: str, send: Callable[[bytes], None], broken: Callable[[str], None]
    ) -> EgressMultiplexer:
        """A multiplexer for one sandbox link."""
        return EgressMultiplexer(owner, self._loop, self, send, broken)

    def close(self) -> None:
        """End all connections and stop the threads."""
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
        """Serve a connection if its exec has an allowance; otherwise return None."""
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
        """Record an attempt; shielded, so that the end of the exec can't cancel it."""
        await asyncio.shield(self._loop.run_in_executor(self._recorder_thread, self._on_attempt, attempt))

    async def _reserve_bytes_async(self, attempt: ConnectionAttempt, least: int) -> int:
        """On the recorder thread, so that reservations are known there before the connection's end."""
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
        await asyncio.sleep(0.01)  # transports close in callbacks on the loop


class BackgroundAllowances:
    """Allowances of a sandbox's background execs, until they are removed. Safe to use from any thread."""

    def __init__(self, owner: str, egress: EgressService | None) -> None:
        """`owner`: the sandbox. `egress`: None for a sandbox without egress."""
        self._owner = owner
        self._egress = egress
        self._lock = threading.Lock()
        self._allowances: dict[Key, ExecAllowance] = {}

    def grant(self, key: Key, within: EgressRules, rules: EgressRules) -> None:
        """Grant an exec its allowance until `end`; a repeated start replaces it."""
        if self._egress is None:
            return
        allowance = self._egress.grant(self._owner, key, within, rules)
        with self._lock:
            older, self._allowances[key] = self._allowances.get(key), allowance
        if older is not None:
            self._egress.end(older)

    def end(self, key: Key) -> None:
        """End an exec's allowance, if it has one."""
        self._end([key])

    def end_all(self) -> None:
        """End all allowances of the sandbox."""
        self._end(list(self._allowances))

    def _end(self, keys: list[Key]) -> None:
        with self._lock:
            ended = [self._allowances.pop(key) for key in keys if key in self._allowances]
        if self._egress is not None:
            for allowance in ended:
                self._egress.end(allowance)
