"""What a worker does again and again: tables of named duties, each table on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from codesdk.domain.clock import Clock
from codesdk.domain.decisions import Frozen
from codesdk.errors import Fault

_log = logging.getLogger(__name__)


class Duty(Frozen):
    """One line of a table."""

    name: str
    """As the log calls it: "look for idle sandboxes"."""
    every_s: float
    """Seconds from one beginning to the next; more where the work itself, or another duty of its round, takes longer."""
    work: Callable[[], object]
    otherwise: str
    """What a fault means until the next try, and who makes up for it."""
    at_once: bool = True
    """Due when the round starts; else `every_s` after that."""


@dataclass
class _Place:
    duty: Duty
    due: float
    """On the monotonic clock."""
    said: str = field(default="")
    """The fault that the log has been told of; empty while all is well."""
    missed: int = 0
    """How often it failed in a row."""


class Round:
    """A thread that goes through its duties.

    A duty that fails is said and due again after its period; it ends neither the round nor any other duty. One that
    hangs holds up those of its own round only: what must not wait for it belongs into another.
    """

    def __init__(self, name: str, clock: Clock, duties: Sequence[Duty]) -> None:
        """`name`: the thread's."""
        self._clock = clock
        now = clock.monotonic()
        self._places = [_Place(duty, now + (0.0 if duty.at_once else duty.every_s)) for duty in duties]
        self._ending = threading.Event()
        self.turns = 0
        """How often it has gone through all of them."""
        self._thread = threading.Thread(target=self._go, name=name, daemon=True)

    def start(self) -> None:
        """Begin, once."""
        self._thread.start()

    def tell(self) -> None:
        """Let nothing more begin; what is at work goes on."""
        self._ending.set()

    def end(self, patience_s: float) -> bool:
        """Tell it, and wait so long for what is at work. False: that is not over yet. A round that never began is."""
        self.tell()
        if self._thread.is_alive():
            self._thread.join(patience_s)
        return not self._thread.is_alive()

    def turn(self) -> float:
        """Do what is due; returns the seconds until something is again."""
        for place in self._places:
            began = self._clock.monotonic()
            if began >= place.due and not self._ending.is_set():
                place.due = began + place.duty.every_s
                _do(place)
        self.turns += 1
        return max(0.0, min((place.due for place in self._places), default=0.0) - self._clock.monotonic())

    def _go(self) -> None:
        while self._places and not self._ending.wait(self.turn()):
            pass


def _do(place: _Place) -> None:
    duty = place.duty
    try:
        duty.work()
    except Fault as fault:
        # Database or engine are away. Rows are facts: what is due is still due then.
        _miss(place, f"{fault}", defect=False)
    except Exception as error:  # noqa: BLE001 (a thread's outermost frame)
        _miss(place, f"{type(error).__name__}: {error}", defect=True)
    else:
        if place.missed:
            _log.info("the duty to %s is done again, after %d that failed", duty.name, place.missed)
        place.missed, place.said = 0, ""


def _miss(place: _Place, said: str, *, defect: bool) -> None:
    """Say each fault once in a row: an engine that is away for an hour is one line, not seven thousand."""
    place.missed += 1
    if said == place.said:
        return
    place.said = said
    duty = place.duty
    if defect:
        _log.exception("a defect: the duty to %s was not done; %s", duty.name, duty.otherwise)
    else:
        _log.warning("the duty to %s was not done: %s; %s", duty.name, said, duty.otherwise)
