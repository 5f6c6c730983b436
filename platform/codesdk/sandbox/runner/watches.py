"""What a worker may ask about changes beneath a directory. The changes wait here, bounded, until they were read.

Each change has a number, and stays until the reader names it as read: an answer that was lost is simply asked for again.
Where there is no room, all that waits is replaced by one "overflow": the reader then knows that it must look anew.
"""

from __future__ import annotations

import os
import select
import time

from codesdk.sandbox.runner import codec, eyes, files
from codesdk.sandbox.runner.beneath import Refused, refusal, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Union

    from codesdk.sandbox.runner.beneath import Root
    from codesdk.sandbox.runner.eyes import Change
    from codesdk.sandbox.runner.loop import Hand, Loop
    from codesdk.sandbox.runner.wire import Message

    Header = dict[str, Any]
    Later = Callable[[int], Callable[[Header, bytes], None]]
    Eye = Union[eyes.Told, eyes.Seen]

MAX_WATCHES = 8
MAX_WAITING = 4096
"""Changes of one watch that wait to be read."""
MAX_WAITING_BYTES = 1024 * 1024
"""Bytes of their paths: a path can have four thousand."""
MAX_WAIT_S = 20.0
KEEP_S = 600.0
"""A watch that nobody has read for so long ends."""
LOOK_S = 1.0
"""Pause between two looks; longer where looking takes long, so that it is a fifth of the time at most."""


class _Watch:
    """One watch; all of it belongs to the loop's thread but what `eye` does."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.eye: Eye | None = None
        self.busy = True
        self.closed = False
        self.over = ""
        self.used = time.monotonic()
        self.look_at: float | None = None
        self.waiting: list[tuple[int, str, str, str]] = []
        self.bytes = 0
        self.last = 0
        self._fresh: set[str] = set()

    def put(self, changes: list[Change]) -> None:
        """Let them wait to be read."""
        for kind, path, source in changes:
            if kind == "changed" and path in self._fresh:
                continue  # it is told already, and that was not read yet
            if kind == "changed":
                self._fresh.add(path)
            else:
                self._fresh.discard(path)
            if len(self.waiting) >= MAX_WAITING or self.bytes + len(path) + len(source) > MAX_WAITING_BYTES:
                self.waiting.clear()
                self._fresh.clear()
                self.bytes = 0
                self._add("overflow", self.top, "")
            elif kind != "overflow" or not self.waiting or self.waiting[-1][1:3] != (kind, path):
                self._add(kind, path, source)

    def _add(self, kind: str, path: str, source: str) -> None:
        self.last += 1
        self.waiting.append((self.last, kind, path, source))
        self.bytes += len(path) + len(source)

    def read(self, after: int, limit: int) -> list[tuple[int, str, str, str]]:
        """Forget what was read, up to `after`; the next ones."""
        count = sum(1 for change in self.waiting if change[0] <= after)
        self.bytes -= sum(len(path) + len(source) for _, _, path, source in self.waiting[:count])
        del self.waiting[:count]
        self._fresh.clear()  # what changes from now on is news to the reader
        return self.waiting[:limit]


class Watches:
    """Its methods run on the loop's thread; looking is done by the thread for long operations."""

    def __init__(
        self, loop: Loop, workspace: Callable[[], Root], hand: Callable[[], Hand], later: Later, told: bool
    ) -> None:
        """Told: the kernel can tell of changes; where it cannot, directories are looked at again and again."""
        self._loop = loop
        self._workspace = workspace
        self._hand = hand
        self._later = later
        self._told = told
        self._known: dict[str, _Watch] = {}
        self._waits: list[tuple[float, _Watch, Callable[[], None]]] = []
        self.handlers: dict[str, Callable[[Message], None]] = {
            "watch.open": self._open, "watch.read": self._read, "watch.close": self._close,
        }  # fmt: skip

    def next_deadline(self) -> float | None:
        """When there is something to do, on the monotonic clock."""
        times = [watch.look_at for watch in self._known.values() if watch.look_at is not None]
        times += [watch.used + KEEP_S for watch in self._known.values()]
        times += [deadline for deadline, _, _ in self._waits]
        return min(times) if times else None

    def tick(self) -> None:
        """Look where it is time, answer what waits, and end what nobody reads."""
        now = time.monotonic()
        for identity, watch in list(self._known.items()):
            if watch.used + KEEP_S <= now:
                self._end(identity)
            elif watch.look_at is not None and watch.look_at <= now:
                watch.look_at = None
                self._look(watch)
        due = [wait for wait in self._waits if wait[0] <= now or wait[1].waiting or wait[1].over]
        self._waits = [wait for wait in self._waits if wait not in due]
        for _, _, answer in due:
            answer()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _open(self, message: Message) -> None:
        answer = self._later(message.number)
        if len(self._known) >= MAX_WATCHES:
            answer(_no("TOO_LARGE", f"more than {MAX_WATCHES} watches at once"), b"")
            return
        path, identity = str(message.header["path"]), os.urandom(8).hex()
        watch = self._known[identity] = _Watch(path)

        def work() -> Callable[[], None]:
            outcome = self._guarded(lambda: self._begin(watch, path))
            return lambda: begun(outcome)

        def begun(outcome: Header) -> None:
            if "refused" in outcome or "error" in outcome:
                self._known.pop(identity, None)
                answer({"path": path, **outcome}, b"")
                return
            answer({"id": identity, "path": files.shown(watch.top), **outcome}, b"")
            assert watch.eye is not None  # noqa: S101 - `_begin` has set it
            watch.put(watch.eye.unseen)
            self._rest(watch, 0.0)

        self._hand().submit(work)

    def _begin(self, watch: _Watch, path: str) -> Header:
        root = self._workspace()
        watch.top = relative(path, root.workspace)
        if self._told:
            try:
                watch.eye = eyes.Told(root, watch.top)
            except OSError as error:
                if error.errno not in eyes.LIMITS:
                    raise
            else:
                return {"method": "inotify"}
        watch.eye = eyes.Seen(root, watch.top)
        return {"method": "polling"}

    def _read(self, message: Message) -> None:
        header = message.header
        watch = self._known.get(str(header["id"]))
        answer = self._later(message.number)
        if watch is None:
            answer(_no("NOT_FOUND", "there is no such watch; it was ended, or not read for too long"), b"")
            return
        watch.used = time.monotonic()
        after, limit = int(header["after"]), min(int(header["limit"]), MAX_WAITING)

        def reply() -> None:
            watch.used = time.monotonic()
            part = watch.read(after, limit)
            rows = [(kind, files.shown(path), files.shown(source)) for _, kind, path, source in part]
            over = "" if len(part) < len(watch.waiting) else watch.over
            answer({"next": part[-1][0] if part else after, "over": over}, codec.dump(rows))

        watch.read(after, 0)
        seconds = min(float(header.get("wait_s", 0.0)), MAX_WAIT_S)
        if seconds <= 0 or watch.waiting or watch.over:
            reply()
        else:
            self._waits.append((time.monotonic() + seconds, watch, reply))

    def _close(self, message: Message) -> None:
        self._later(message.number)({"ended": self._end(str(message.header["id"]))}, b"")

    def _end(self, identity: str) -> bool:
        watch = self._known.pop(identity, None)
        if watch is None:
            return False
        watch.closed, watch.over = True, watch.over or "it was ended"
        if not watch.busy:
            self._shut(watch)
        return True

    def _shut(self, watch: _Watch) -> None:
        eye, watch.eye = watch.eye, None
        if eye is not None:
            self._loop.forget(eye.fd)
            eye.close()

    # -- looking ------------------------------------------------------------------------------------------------------

    def _rest(self, watch: _Watch, took_s: float) -> None:
        """Until there is something to see."""
        watch.busy = False
        if watch.closed or watch.over or watch.eye is None:
            self._shut(watch)
        elif watch.eye.fd >= 0:
            self._loop.watch(watch.eye.fd, select.POLLIN, lambda *_: self._look(watch))
        else:
            watch.look_at = time.monotonic() + max(LOOK_S, 4 * took_s)

    def _look(self, watch: _Watch) -> None:
        eye = watch.eye
        if eye is None or watch.busy:
            return
        self._loop.forget(eye.fd)
        watch.busy = True
        began = time.monotonic()

        def work() -> Callable[[], None]:
            changes: list[Change] = []
            outcome = self._guarded(lambda: self._see(watch, eye, changes))
            return lambda: seen(outcome, changes)

        def seen(outcome: Header, changes: list[Change]) -> None:
            watch.put(changes)
            watch.over = watch.over or str(outcome.get("message", ""))
            self._rest(watch, time.monotonic() - began)

        self._hand().submit(work)

    def _see(self, watch: _Watch, eye: Eye, changes: list[Change]) -> Header:
        try:
            changes += eye.read()
        except OSError as error:
            if eye.fd < 0 or error.errno not in eyes.LIMITS:
                raise
            # The kernel tells of no more directories: what happened in them meanwhile is unknown, then we look ourselves.
            changes.append(("overflow", watch.top, ""))
            watch.eye = eyes.Seen(self._workspace(), watch.top)
            eye.close()
        return {}

    @staticmethod
    def _guarded(work: Callable[[], Header]) -> Header:
        """Whatever goes wrong is an outcome, and the thread lives on."""
        try:
            return work()
        except Refused as refused:
            return _no(refused.error, refused.message)
        except eyes.Ended as ended:
            return _no("TOO_LARGE", str(ended))
        except OSError as error:
            why = refusal(error)
            return _no(why.error, why.message)
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
            return {"error": "BAD_REQUEST", "message": repr(error)}


def _no(word: str, message: str) -> Header:
    return {"refused": word, "path": "", "message": message}
