"""Acquires the session's sandbox for one call.

Waits while the engine is unavailable, and gets another sandbox if the first one ended before it was asked for anything.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from codesdk.domain.clock import Clock
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import Fault
from codesdk.sandbox.channel.execs import ENGINE_OUTAGE_S
from codesdk.sandbox.port import Sandbox
from codesdk.sandbox.port.faults import CallCancelled, EngineUnavailable, SandboxGone
from codesdk.storage.faults import StorageUnavailable

T = TypeVar("T")

RETRY_S = 0.5
"""Seconds between tries to reach the engine and the database, and checks whether the call was cancelled."""
UNAVAILABLE_RETRIES = int(ENGINE_OUTAGE_S / RETRY_S)
"""How often an unavailable engine is tried: in total as long as a running call waits for it."""
WARM_ACQUIRE_S = 0.02
"""An acquisition that took less found a running sandbox, and needs no further check in the database."""
MAX_SANDBOXES = 3
"""Sandboxes that one attempt tries: one that keeps ending before it is asked will do so again."""


class NotStarted(Fault):
    """Something blocked the call while it waited, and it has not started."""

    code = "NOT_BEGUN"
    status = 409

    @classmethod
    def because(cls, what: str) -> NotStarted:
        """`what`: the reason, as a clause."""
        return cls(f"This call was not begun: meanwhile {what}.")


class SandboxAcquisition:
    """Of one attempt, on one thread."""

    def __init__(
        self,
        open_sandbox: Callable[[], Sandbox],
        lost: Callable[[Sandbox], bool],
        *,
        clock: Clock,
        abandoned: threading.Event,
        blocked_by: Callable[[], str],
    ) -> None:
        """`open_sandbox`: opens the session's; `lost`: called with one that failed, False if there can be no other.

        `abandoned`: set when the worker leaves; `blocked_by`: what blocks the call by now, or nothing.
        """
        self._open = open_sandbox
        self._lost = lost
        self._clock = clock
        self._abandoned = abandoned
        self._blocked_by = blocked_by
        self._since = clock.monotonic()
        self._left = UNAVAILABLE_RETRIES
        self.sandbox: Sandbox | None = None
        """The sandbox that may have been asked to run something."""
        self.was_sent_to_server = False
        """Whether the call may have gone to an MCP server."""

    @property
    def was_asked(self) -> bool:
        """Whether a sandbox or a server may have run something."""
        return self.sandbox is not None or self.was_sent_to_server

    def run(self, work: Callable[[Sandbox], ToolResult], *, is_effect_free: bool) -> ToolResult:
        """Run `work` in the session's sandbox. `is_effect_free`: an unsent request means that the whole call had no effect.

        Raises:
            NotStarted: something blocked the call while its sandbox was acquired.
            Fault: what keeps a sandbox from opening, or what `work` raised.
        """
        remaining = MAX_SANDBOXES
        while True:
            sandbox = self.sandbox = self._open_with_retry()
            try:
                return work(sandbox)
            except CallCancelled as cancelled:
                if cancelled.was_sent:
                    raise
                self.sandbox = None
                raise NotStarted.because(self._blocked_by() or "it was cancelled") from None
            except EngineUnavailable as fault:
                if fault.was_sent or not is_effect_free:
                    raise
                # The sandbox may be well, and run other calls.
                self.sandbox = None
                self._wait(fault)
            except SandboxGone as fault:
                if fault.was_sent or not is_effect_free:
                    raise
                # It had ended while it was idle: the session may get another.
                self.sandbox = None
                remaining -= 1
                if not self._lost(sandbox) or not remaining:
                    raise

    def retry_while_unavailable(self, ask: Callable[[], T]) -> T:
        """Call `ask`, which runs before anything has started; retry while the database is unavailable.

        Raises:
            Fault: what `ask` raises; after `abandoned` also a database that is away.
        """
        while True:
            try:
                return ask()
            except StorageUnavailable as fault:
                if not fault.retryable or self._abandoned.wait(RETRY_S):
                    raise

    def confirm_before_send(self, confirm: Callable[[], None]) -> None:
        """Confirm that the host is still this worker's, as the last step before a call goes to an MCP server.

        Raises:
            NotStarted: something blocked the call while this waited for the database.
            Fault: as `retry_while_unavailable`.
        """
        began = self._clock.monotonic()
        self.retry_while_unavailable(confirm)
        if self._clock.monotonic() - began > WARM_ACQUIRE_S and (what := self._blocked_by()):
            raise NotStarted.because(what)
        self.was_sent_to_server = True

    def _open_with_retry(self) -> Sandbox:
        """Open the sandbox; wait while the database or the engine is unavailable, since nothing has run yet.

        Raises:
            NotStarted: as `run`.
            Fault: what keeps the sandbox from opening; after `abandoned` also a database that is away.
        """
        while True:
            began = self._clock.monotonic()
            try:
                sandbox = self.retry_while_unavailable(self._open)
            except EngineUnavailable as fault:
                self._wait(fault)
            else:
                # A cancel could not reach a runner that was still starting.
                if self._clock.monotonic() - began > WARM_ACQUIRE_S and (what := self._blocked_by()):
                    raise NotStarted.because(what)
                return sandbox

    def _wait(self, fault: EngineUnavailable) -> None:
        # A problem with the engine's certificates doesn't pass by itself.
        if not fault.retryable or not self._may_wait() or self._abandoned.wait(RETRY_S):
            raise fault
        if what := self._blocked_by():
            raise NotStarted.because(what) from None

    def _may_wait(self) -> bool:
        """Whether to keep waiting for the engine. Bounded by time, too: one that hangs is slow to answer each try."""
        self._left -= 1
        return self._left >= 0 and self._clock.monotonic() - self._since < UNAVAILABLE_RETRIES * RETRY_S
