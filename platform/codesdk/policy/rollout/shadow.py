"""Shadow evaluation: decides live calls under a candidate bundle on a background thread, and counts differences.

A live call is added to a bounded queue after its own decision; calls that do not fit are skipped and counted. The
candidate never affects a live decision.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from codesdk.domain.calls import ToolCall
from codesdk.domain.decisions import Decision, Effect
from codesdk.domain.subjects import Subject
from codesdk.errors import Fault
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.evaluation.decision import decide
from codesdk.policy.facts import ToolFacts
from codesdk.policy.rollout.version_models import ShadowDifference

_log = logging.getLogger(__name__)

MAX_QUEUED = 1000
"""Maximum number of queued calls."""
MAX_QUEUED_BYTES = 16 * 1024 * 1024
"""Maximum estimated size of queued inputs. An input may have 4 MiB, but most are below 1 KiB."""
MAX_MEASURED_VALUES = 10_000
"""Values of an input that are counted; a larger input counts as `MAX_QUEUED_BYTES`."""
FLUSH_S = 1.0
"""Seconds between writes of the counts."""


class Candidate(NamedTuple):
    """The candidate bundle for one tenant."""

    layer: str
    hash: str
    """Hash of the candidate layer alone."""
    bundle: Bundle
    """The candidate merged with the other layers."""


class CandidateProvider(Protocol):
    """Finds the candidate for a tenant."""

    def tries(self, tenant: str) -> bool:
        """Return whether the tenant has a candidate. Does not access the database."""
        ...

    def candidate(self, tenant: str, session_rules: str | None) -> Candidate | None:
        """Return the candidate for a session's calls, if there is one."""
        ...


class _ObservedCall(NamedTuple):
    call: ToolCall
    tool: ToolFacts
    subject: Subject
    before: Effect
    size: int
    """Estimated size in bytes."""


class ShadowEvaluator:
    """Runs the candidate on queued calls. Safe to use from any thread."""

    def __init__(
        self, candidates: CandidateProvider, write: Callable[[Iterable[tuple[str, str, ShadowDifference]]], None]
    ) -> None:
        """`write` adds counts to the stored ones; each item has layer, hash and count."""
        self._candidates = candidates
        self._write = write
        self._queue: deque[_ObservedCall] = deque()
        self._counts: dict[tuple[str, str, Effect, Effect | None, str], tuple[int, str]] = {}
        self._wakeup = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._bytes = 0
        self._lock = threading.Lock()  # guards _bytes and _skipped
        self._skipped: Counter[str] = Counter()

    def skipped(self, tenant: str | None = None) -> int:
        """Return how many calls this process skipped because its queue was full, in total or for one tenant."""
        with self._lock:
            return self._skipped.total() if tenant is None else self._skipped[tenant]

    def observe(self, call: ToolCall, tool: ToolFacts, subject: Subject, decision: Decision) -> None:
        """Queue a decided call. Never blocks and never fails."""
        if not self._candidates.tries(subject.tenant_id):
            return
        size = estimate_size(call.input)
        with self._lock:
            if len(self._queue) >= MAX_QUEUED or self._bytes + size > MAX_QUEUED_BYTES:
                self._skipped[subject.tenant_id] += 1
                return
            self._bytes += size
        self._queue.append(_ObservedCall(call, tool, subject, decision.effect, size))
        self._wakeup.set()

    def start(self) -> None:
        """Start the background thread."""
        self._thread = threading.Thread(target=self._run, name="codesdk-shadow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the thread after writing the counts."""
        self._closing.set()
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def process_queue(self) -> None:
        """Decide all queued calls and write the counts."""
        while self._queue:
            seen = self._queue.popleft()
            with self._lock:
                self._bytes -= seen.size
            try:
                found = self._candidates.candidate(seen.subject.tenant_id, seen.subject.policy_hash)
            except Fault as fault:  # the session's rules can't be read now
                _log.warning("a call was not evaluated under the shadow policy: %s", fault)
                with self._lock:
                    self._skipped[seen.subject.tenant_id] += 1
                continue
            if found is not None:
                self._count(seen, found)
        if self._counts:
            counted, self._counts = self._counts, {}
            try:
                self._write([_difference(key, *value) for key, value in counted.items()])
            except Fault as fault:
                _log.warning("could not write the counts of a shadow policy, will try again: %s", fault)
                self._counts = counted

    def _count(self, seen: _ObservedCall, candidate: Candidate) -> None:
        try:
            told = decide(seen.call, seen.tool, seen.subject, candidate.bundle)
            after, rule = told.effect, next(iter(told.rules), "")
        except Exception:  # noqa: BLE001 (decide is total; a defect in it that only a candidate meets is counted, not raised)
            _log.exception("the shadow policy %s failed on call %s", candidate.hash, seen.call.identity.tool_call_id)
            after, rule = None, ""
        key = (candidate.layer, candidate.hash, seen.before, after, rule)
        self._counts[key] = (self._counts.get(key, (0, ""))[0] + 1, seen.call.identity.tool_call_id)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wakeup.wait()
            self._wakeup.clear()
            try:
                self.process_queue()
            except Exception:  # noqa: BLE001 (the thread must go on: nothing that it does touches a live call)
                _log.exception("evaluating a shadow policy failed")
            self._closing.wait(FLUSH_S)  # combines many calls into one write
        self.process_queue()


def estimate_size(value: Any) -> int:
    """Estimate the size of a call's input in bytes: its characters, and 8 for each value."""
    size = seen = 0
    pending = [value]
    while pending:
        one = pending.pop()
        seen += 1
        if seen > MAX_MEASURED_VALUES:
            return MAX_QUEUED_BYTES
        size += 8
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, Mapping):
            size += sum(map(len, one))
            pending.extend(one.values())
        elif isinstance(one, list):
            pending.extend(one)
    return size


def _difference(
    key: tuple[str, str, Effect, Effect | None, str], count: int, call: str
) -> tuple[str, str, ShadowDifference]:
    layer, bundle_hash, before, after, rule = key
    return (
        layer,
        bundle_hash,
        ShadowDifference(before=before, after=after, rule=rule, count=count, last_call=call, last_at=0),
    )
