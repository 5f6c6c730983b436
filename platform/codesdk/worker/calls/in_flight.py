"""Which calls this worker's threads have in in_flight, and which of its running ones nobody has."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from codesdk.domain.calls import CallIdentity
from codesdk.toolcalls.records.call_record import CallRecord


class OrphanedCall(NamedTuple):
    """A call that runs by its row, and by that alone."""

    stored: CallRecord
    begun: bool
    """A thread had it before. Else its claim's answer was lost on the way from the database, and nothing was done."""


class InFlightCalls:
    """Safe to use from the worker's threads.

    A claim can be committed and its answer lost with the connection: then the row says that the call runs, and nobody
    runs it. A look at the rows alone cannot tell that from a claim which is just about to be answered. So claims are
    *under way* from before their unit until after: a call that no thread has, and that was seen before all claims of that
    moment came back, is a stray.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._claims_in_progress: set[int] = set()
        self._calls: set[CallIdentity] = set()
        self._released: set[CallIdentity] = set()
        """Were held; kept only while their rows say that they run."""
        self._suspects: dict[CallIdentity, frozenset[int]] = {}
        """Calls that nobody had when they were looked at first, with the claims that were under way then."""

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """A claim is under way; what it took must be held before the block is left."""
        with self._lock:
            number = next(self._numbers)
            self._claims_in_progress.add(number)
        try:
            yield
        finally:
            with self._lock:
                self._claims_in_progress.discard(number)

    def add(self, *calls: CallIdentity) -> None:
        """Hold them."""
        with self._lock:
            self._calls.update(calls)

    def discard(self, call: CallIdentity) -> None:
        """Hold it no more: it has ended, or its thread gave it up."""
        with self._lock:
            self._calls.discard(call)
            self._released.add(call)

    def take_orphaned(self, running: Iterable[CallRecord]) -> list[OrphanedCall]:
        """Take the strays in in_flight. `running`: this worker's calls as their rows are now; what is new is only noted."""
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
