"""Which calls this worker's threads have in hand, and which of its running ones nobody has."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import NamedTuple

from codesdk.domain.calls import CallIdentity
from codesdk.toolcalls.stored import StoredCall


class Stray(NamedTuple):
    """A call that runs by its row, and by that alone."""

    stored: StoredCall
    begun: bool
    """A thread had it before. Else its claim's answer was lost on the way from the database, and nothing was done."""


class Hand:
    """Safe to use from the worker's threads.

    A claim can be committed and its answer lost with the connection: then the row says that the call runs, and nobody
    runs it. A look at the rows alone cannot tell that from a claim which is just about to be answered. So claims are
    *under way* from before their unit until after: a call that no thread has, and that was seen before all claims of that
    moment came back, is a stray.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = count()
        self._under_way: set[int] = set()
        self._held: set[CallIdentity] = set()
        self._left: set[CallIdentity] = set()
        """Were held; kept only while their rows say that they run."""
        self._suspects: dict[CallIdentity, frozenset[int]] = {}
        """Calls that nobody had when they were looked at first, with the claims that were under way then."""

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """A claim is under way; what it took must be held before the block is left."""
        with self._lock:
            number = next(self._numbers)
            self._under_way.add(number)
        try:
            yield
        finally:
            with self._lock:
                self._under_way.discard(number)

    def take(self, *calls: CallIdentity) -> None:
        """Hold them."""
        with self._lock:
            self._held.update(calls)

    def leave(self, call: CallIdentity) -> None:
        """Hold it no more: it has ended, or its thread gave it up."""
        with self._lock:
            self._held.discard(call)
            self._left.add(call)

    def strays(self, running: Iterable[StoredCall]) -> list[Stray]:
        """Take the strays in hand. `running`: this worker's calls as their rows are now; what is new is only noted."""
        with self._lock:
            rows = {stored.identity: stored for stored in running}
            unheld = [call for call in rows if call not in self._held]
            found = [call for call in unheld if call in self._suspects and not self._suspects[call] & self._under_way]
            now = frozenset(self._under_way)
            self._suspects = {call: self._suspects.get(call, now) for call in unheld if call not in found}
            self._left &= rows.keys()
            self._held.update(found)
            return [Stray(rows[call], begun=call in self._left) for call in found]
