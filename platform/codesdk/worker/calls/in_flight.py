"""In-flight calls: those that a thread of this worker runs, and running calls that no thread has (orphaned)."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from codesdk.domain.calls import CallIdentity
from codesdk.toolcalls.records.call_record import CallRecord


class OrphanedCall(NamedTuple):
    """A call whose row is `running` while no thread of this worker runs it."""

    stored: CallRecord
    begun: bool
    """A thread ran it before. False: the claim's commit succeeded but its answer was lost, so nothing has run."""


class InFlightCalls:
    """Thread-safe.

    A claim can commit while its answer is lost with the connection. Then the row is `running` and no thread runs the
    call. The row alone looks the same as a claim whose answer is still on its way. So each claim is *in progress* from
    before its unit until after it. A call is orphaned if no thread has it and every claim that was in progress when it
    was first seen has returned.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._claims_in_progress: set[int] = set()
        self._calls: set[CallIdentity] = set()
        self._released: set[CallIdentity] = set()
        """Calls that their thread has released; kept only while their rows are `running`."""
        self._suspects: dict[CallIdentity, frozenset[int]] = {}
        """Calls without a thread when first seen, each with the claims that were in progress then."""

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Mark a claim as in progress. `add` the claimed call before leaving the block."""
        with self._lock:
            number = next(self._numbers)
            self._claims_in_progress.add(number)
        try:
            yield
        finally:
            with self._lock:
                self._claims_in_progress.discard(number)

    def add(self, *calls: CallIdentity) -> None:
        """Register calls that a thread runs."""
        with self._lock:
            self._calls.update(calls)

    def discard(self, call: CallIdentity) -> None:
        """Remove a call that has ended or that its thread gave up."""
        with self._lock:
            self._calls.discard(call)
            self._released.add(call)

    def take_orphaned(self, running: Iterable[CallRecord]) -> list[OrphanedCall]:
        """Register and return the orphaned calls. `running`: this worker's running rows. A call seen first is only noted."""
        with self._lock:
            rows = {stored.identity: stored for stored in running}
            unowned = [call for call in rows if call not in self._calls]
            found = [
                call
                for call in unowned
                if call in self._suspects and not self._suspects[call] & self._claims_in_progress
            ]
            now = frozenset(self._claims_in_progress)
            self._suspects = {call: self._suspects.get(call, now) for call in unowned if call not in found}
            self._released &= rows.keys()
            self._calls.update(found)
            return [OrphanedCall(rows[call], begun=call in self._released) for call in found]
