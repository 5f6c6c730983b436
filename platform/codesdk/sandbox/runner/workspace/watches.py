"""Serves watch requests, and queues unread changes with bounds.

Each change has a number and stays queued until the reader confirms it, so a lost answer can be requested again. If the
queue is full, one "overflow" replaces all of it, which tells the reader to scan again.
"""

from __future__ import annotations

import os
import select
import time

from codesdk.sandbox.runner.event_loop import PendingAnswers
from codesdk.sandbox.runner.protocol import wire
from codesdk.sandbox.runner.workspace import file_watcher
from codesdk.sandbox.runner.workspace.names import spell, unspell
from codesdk.sandbox.runner.workspace.root import catch_errors, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Union

    from codesdk.sandbox.runner.event_loop import EventLoop, SerialExecutor
    from codesdk.sandbox.runner.protocol.wire import Message
    from codesdk.sandbox.runner.workspace.file_watcher import Change
    from codesdk.sandbox.runner.workspace.root import Root

    Header = dict[str, Any]
    ReplyLater = Callable[[int], Callable[[Header, bytes], None]]
    Watcher = Union[file_watcher.InotifyWatcher, file_watcher.PollingWatcher]

MAX_WATCHES = 8
MAX_WAITING = 4096
"""Maximum unread changes per watch."""
MAX_WAITING_BYTES = 1024 * 1024
"""Maximum bytes of their paths; a path can have 4,096."""
IDLE_TIMEOUT_S = 600.0
"""Seconds without a read after which a watch ends."""
POLL_INTERVAL_S = 1.0
"""Interval between polls; longer if polls are slow, so that they take at most a fifth of the time."""


class _Watch:
    """One watch. Used on the loop's thread, except `watcher`."""

    def __init__(self, top: str) -> None:
        self.top = top
        self.watcher: Watcher | None = None
        self.busy = True
        self.closed = False
        self.over = ""
        self.used = time.monotonic()
        self.poll_at: float | None = None
        self.waiting: list[tuple[int, str, str, str]] = []
        self.bytes = 0
        self.last = 0
        self._reported: set[str] = set()

    def put(self, changes: list[Change]) -> None:
        """Queue changes."""
        for kind, path, source in changes:
            if kind == "changed" and path in self._reported:
                continue  # already queued and not read yet
            if kind == "changed":
                self._reported.add(path)
            else:
                self._reported.discard(path)
            if len(self.waiting) >= MAX_WAITING or self.bytes + len(path) + len(source) > MAX_WAITING_BYTES:
                self.waiting.clear()
                self._reported.clear()
                self.bytes = 0
                self._add("overflow", self.top, "")
            elif kind != "overflow" or not self.waiting or self.waiting[-1][1:3] != (kind, path):
                self._add(kind, path, source)

    def _add(self, kind: str, path: str, source: str) -> None:
        self.last += 1
        self.waiting.append((self.last, kind, path, source))
        self.bytes += len(path) + len(source)

    def read(self, after: int, limit: int) -> list[tuple[int, str, str, str]]:
        """Drop changes up to number `after`; returns the next ones."""
        count = sum(1 for change in self.waiting if change[0] <= after)
        self.bytes -= sum(len(path) + len(source) for _, _, path, source in self.waiting[:count])
        del self.waiting[:count]
        self._reported.clear()  # the reader needs to learn of changes after this read
        return self.waiting[:limit]


class Watches:
    """All watches of the sandbox. Methods run on the loop's thread, polls on the long-operation thread."""

    def __init__(
        self,
        loop: EventLoop,
        workspace: Callable[[], Root],
        executor: Callable[[], SerialExecutor],
        reply_later: ReplyLater,
        use_inotify: bool,
    ) -> None:
        """`use_inotify`: False to always poll."""
        self._loop = loop
        self._workspace = workspace
        self._executor = executor
        self._reply_later = reply_later
        self._use_inotify = use_inotify
        self._watches: dict[str, _Watch] = {}
        self._pending_answers = PendingAnswers()
        self.handlers: dict[str, Callable[[Message], None]] = {
            "watch.open": self._open, "watch.read": self._read, "watch.close": self._close,
        }  # fmt: skip

    def next_deadline(self) -> float | None:
        """Return when `tick` is due, on the monotonic clock."""
        times = [watch.poll_at for watch in self._watches.values() if watch.poll_at is not None]
        times += [watch.used + IDLE_TIMEOUT_S for watch in self._watches.values()]
        return min((time for time in (*times, self._pending_answers.next_deadline()) if time is not None), default=None)

    def tick(self) -> None:
        """Poll if due, answer pending reads, end watches that weren't read for `IDLE_TIMEOUT_S`."""
        now = time.monotonic()
        for identity, watch in list(self._watches.items()):
            if watch.used + IDLE_TIMEOUT_S <= now:
                self._end(identity)
            elif watch.poll_at is not None and watch.poll_at <= now:
                watch.poll_at = None
                self._poll(watch)
        self._pending_answers.tick()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _open(self, message: Message) -> None:
        answer = self._reply_later(message.number)
        if len(self._watches) >= MAX_WATCHES:
            answer(_refused("TOO_LARGE", f"more than {MAX_WATCHES} watches at once"), b"")
            return
        path, identity = unspell(str(message.header["path"])), os.urandom(8).hex()
        watch = self._watches[identity] = _Watch(path)

        def work() -> Callable[[], None]:
            outcome = catch_errors(lambda: self._begin(watch, path))
            return lambda: begun(outcome)

        def begun(outcome: Header) -> None:
            if "refused" in outcome or "error" in outcome:
                self._watches.pop(identity, None)
                answer({"path": spell(path), **outcome}, b"")
                return
            answer({"id": identity, "path": spell(watch.top), **outcome}, b"")
            assert watch.watcher is not None  # noqa: S101 - `_begin` has set it
            watch.put(watch.watcher.unseen)
            self._wait_for_changes(watch, 0.0)

        self._executor().submit(work)

    def _begin(self, watch: _Watch, path: str) -> Header:
        root = self._workspace()
        watch.top = relative(path, root.workspace)
        if self._use_inotify:
            try:
                watch.watcher = file_watcher.InotifyWatcher(root, watch.top)
            except OSError as error:
                if error.errno not in file_watcher.LIMITS:
                    raise
            else:
                return {"method": "inotify"}
        watch.watcher = file_watcher.PollingWatcher(root, watch.top)
        return {"method": "polling"}

    def _read(self, message: Message) -> None:
        header = message.header
        watch = self._watches.get(str(header["id"]))
        answer = self._reply_later(message.number)
        if watch is None:
            answer(_refused("NOT_FOUND", "there is no such watch; it was ended, or not read in time"), b"")
            return
        watch.used = time.monotonic()
        after, limit = int(header["after"]), min(int(header["limit"]), MAX_WAITING)

        def reply() -> None:
            watch.used = time.monotonic()
            part = watch.read(after, limit)
            rows = [(kind, spell(path), spell(source)) for _, kind, path, source in part]
            over = "" if len(part) < len(watch.waiting) else watch.over
            answer({"next": part[-1][0] if part else after, "over": over}, wire.dump_json(rows))

        watch.read(after, 0)
        self._pending_answers.add(header, lambda: bool(watch.waiting or watch.over), reply)

    def _close(self, message: Message) -> None:
        self._reply_later(message.number)({"ended": self._end(str(message.header["id"]))}, b"")

    def _end(self, identity: str) -> bool:
        watch = self._watches.pop(identity, None)
        if watch is None:
            return False
        watch.closed, watch.over = True, watch.over or "it was ended"
        if not watch.busy:
            self._close_watcher(watch)
        return True

    def _close_watcher(self, watch: _Watch) -> None:
        watcher, watch.watcher = watch.watcher, None
        if watcher is not None:
            self._loop.forget(watcher.fd)
            watcher.close()

    # -- looking ------------------------------------------------------------------------------------------------------

    def _wait_for_changes(self, watch: _Watch, took_s: float) -> None:
        """Wait for inotify events, or schedule the next poll."""
        watch.busy = False
        if watch.closed or watch.over or watch.watcher is None:
            self._close_watcher(watch)
        elif watch.watcher.fd >= 0:
            self._loop.watch(watch.watcher.fd, select.POLLIN, lambda *_: self._poll(watch))
        else:
            watch.poll_at = time.monotonic() + max(POLL_INTERVAL_S, 4 * took_s)

    def _poll(self, watch: _Watch) -> None:
        watcher = watch.watcher
        if watcher is None or watch.busy:
            return
        self._loop.forget(watcher.fd)
        watch.busy = True
        began = time.monotonic()

        def work() -> Callable[[], None]:
            changes: list[Change] = []
            outcome = catch_errors(lambda: self._read_changes(watch, watcher, changes))
            return lambda: seen(outcome, changes)

        def seen(outcome: Header, changes: list[Change]) -> None:
            watch.put(changes)
            watch.over = watch.over or str(outcome.get("message", ""))
            self._wait_for_changes(watch, time.monotonic() - began)

        self._executor().submit(work)

    def _read_changes(self, watch: _Watch, watcher: Watcher, changes: list[Change]) -> Header:
        try:
            changes += watcher.read()
        except OSError as error:
            if watcher.fd < 0 or error.errno not in file_watcher.LIMITS:
                raise
            # The inotify limit is reached, so changes may have been missed: report an overflow and poll from now on.
            changes.append(("overflow", watch.top, ""))
            watch.watcher = file_watcher.PollingWatcher(self._workspace(), watch.top)
            watcher.close()
        return {}


def _refused(word: str, message: str) -> Header:
    return {"refused": word, "path": "", "message": message}
