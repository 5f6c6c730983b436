"""Egress of all sandboxes of a worker: one thread with one loop, the leases of running execs, the recorder."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from codesdk.domain.addresses import AddressPolicy
from codesdk.domain.resolution import Resolve, not_this_machine, system_resolve
from codesdk.sandbox.egress.attempt import Attempt, OnAttempt, Phase, Reason
from codesdk.sandbox.egress.carrier import Carrier
from codesdk.sandbox.egress.conduit import Conduit
from codesdk.sandbox.egress.credit import OnShort, plenty
from codesdk.sandbox.egress.dial import Dialer
from codesdk.sandbox.egress.lease import Key, Lease
from codesdk.sandbox.egress.proxy import FIRST_S, Proxy
from codesdk.sandbox.egress.rules import EgressRules

_log = logging.getLogger(__name__)

SecretResolver = Callable[[str, str], str | None]
"""(owner, name): the value, or None. Called on a thread, once for each connection that needs it."""
RESOLVING = 8
"""Threads for the system's resolver: a name that does not answer holds one for as long as the resolver waits."""
_END_S = 15.0
_T = TypeVar("_T")


def no_secrets(_owner: str, _name: str) -> str | None:
    """A worker without a secret store."""
    return None


class Egress:
    """Give a `Lease` before the exec starts, end it after; a `Carrier` for each link."""

    def __init__(
        self,
        on_attempt: OnAttempt,
        *,
        on_short: OnShort = plenty,
        secrets: SecretResolver = no_secrets,
        resolve: Resolve = system_resolve,
        policy: AddressPolicy = not_this_machine,
        tls: ssl.SSLContext | None = None,
        first_s: float = FIRST_S,
    ) -> None:
        self._on_attempt = on_attempt
        self._on_short = on_short
        self._secrets = secrets
        self._leases: dict[tuple[str, Key], Lease] = {}
        self._tasks: dict[tuple[str, Key], set[asyncio.Task[None]]] = {}
        self._resolving = ThreadPoolExecutor(RESOLVING, thread_name_prefix="egress-resolve")
        self._recording = ThreadPoolExecutor(1, thread_name_prefix="egress-record")
        self._asking = ThreadPoolExecutor(2, thread_name_prefix="egress-secret")
        dialer = Dialer(resolve, policy, self._resolving, tls or ssl.create_default_context())
        self._proxy = Proxy(dialer, self.record, self._more, self._secret, first_s=first_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="egress", daemon=True)
        self._thread.start()

    # -- from any thread --------------------------------------------------------------------------------------------

    def grant(self, owner: str, key: Key, within: EgressRules, rules: EgressRules) -> Lease:
        """Let one exec reach what both sets of rules allow. Joining the same exec again gives the same lease."""

        async def give() -> Lease:
            lease = self._leases.setdefault((owner, key), Lease(owner, key, within, rules))
            lease.holders += 1
            return lease

        return self._run(give())

    def end(self, lease: Lease) -> None:
        """The exec is over: its connections end, and all its attempts are recorded when this returns."""
        try:
            self._run(self._end(lease))
        except TimeoutError:
            # The exec's result is worth more than waiting on; what is left ends by itself, and is recorded then.
            _log.exception("egress of %s did not end within %g s", lease.owner, _END_S)

    def carrier(self, owner: str, send: Callable[[bytes], None], broken: Callable[[str], None]) -> Carrier:
        """For one link of a sandbox."""
        return Carrier(owner, self._loop, self, send, broken)

    def close(self) -> None:
        """End everything."""
        self._run(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)
        for threads in (self._resolving, self._asking, self._recording):
            threads.shutdown(wait=threads is self._recording, cancel_futures=threads is not self._recording)
        if not self._thread.is_alive():
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_END_S)

    # -- on the loop ------------------------------------------------------------------------------------------------

    def admit(
        self, owner: str, call: str, attempt: int, conduit: Conduit, credential: str
    ) -> asyncio.Task[None] | None:
        """Serve a connection of that exec, if it has a lease."""
        key = (owner, (call, attempt))
        lease = self._leases.get(key)
        if lease is None:
            return None
        task = self._loop.create_task(self._proxy.serve(conduit, lease, credential))
        tasks = self._tasks.setdefault(key, set())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return task

    async def record(self, attempt: Attempt) -> None:
        """Hand it to whoever keeps the records; shielded, so that the end of an exec cannot undo it."""
        await asyncio.shield(self._loop.run_in_executor(self._recording, self._on_attempt, attempt))

    async def _more(self, attempt: Attempt, least: int) -> int:
        """By the thread that records: what was taken is known there when the connection's end comes."""
        return await asyncio.shield(self._loop.run_in_executor(self._recording, self._on_short, attempt, least))

    async def _secret(self, owner: str, name: str) -> str | None:
        return await self._loop.run_in_executor(self._asking, self._secrets, owner, name)

    async def _end(self, lease: Lease) -> None:
        lease.holders -= 1
        if lease.holders > 0:
            return
        lease.ended = True
        self._leases.pop((lease.owner, lease.key), None)
        await self._stop(self._tasks.pop((lease.owner, lease.key), set()))
        if lease.unread:
            call, attempt = lease.key
            flood = Attempt(
                owner=lease.owner,
                call=call,
                attempt=attempt,
                number=0,
                phase=Phase.REFUSED,
                reason=Reason.TOO_MANY,
                detail="refused unread: far too many attempts",
                count=lease.unread,
            )
            try:
                await self.record(flood)
            except Exception:  # noqa: BLE001 - the recorder is somebody else's; the exec is over
                _log.exception("refused egress attempts of %s could not be recorded", lease.owner)

    async def _stop(self, tasks: set[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_END_S / 2)

    async def _shut(self) -> None:
        for lease in list(self._leases.values()):
            lease.holders = 1
            await self._end(lease)
        mine = asyncio.current_task()
        await self._stop({task for task in asyncio.all_tasks() if task is not mine})
        await asyncio.sleep(0.01)  # the transports' own ends are posted to the loop
