"""Snapshots and restores of the whole workspace, with every tool standing still meanwhile."""

from __future__ import annotations

import os
import time

from codesdk.sandbox.runner.beneath import Refused, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable

    from codesdk.sandbox.runner.beneath import Root
    from codesdk.sandbox.runner.loop import Hand
    from codesdk.sandbox.runner.restore import Feed
    from codesdk.sandbox.runner.wire import Message

    Header = dict[str, Any]
    Later = Callable[[int], Callable[[Header, bytes], None]]

KEEP_S = 30.0
"""After this without a request the tools run on: a worker that died must not leave a sandbox frozen."""
MAX_PIECE = 4 * 1024 * 1024


class _Still:
    """One snapshot or restore under way."""

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.used = time.monotonic()
        self.busy = False
        self.pieces: Iterator[bytes] | None = None
        self.rest = bytearray()
        self.offset = 0
        self.packer: Any = None
        self.feed: Feed | None = None
        self.outcome: Header | None = None


class Stills:
    """One at a time. Its methods run on the loop's thread; the work is done by the thread for long operations."""

    def __init__(
        self,
        workspace: Callable[[], Root],
        hand: Callable[[], Hand],
        freeze: Callable[[bool, Callable[[], None]], None],
        later: Later,
        mode: str,
    ) -> None:
        """Freeze: (stop or continue, done) for all tools. Mode: what tools may do with the workspace."""
        self._workspace = workspace
        self._hand = hand
        self._freeze = freeze
        self._later = later
        self._mode = mode
        self._present: _Still | None = None
        self.handlers: dict[str, Callable[[Message], None]] = {
            "snapshot.open": self._open, "snapshot.read": self._read, "snapshot.close": self._close,
            "restore.open": self._open, "restore.append": self._append, "restore.commit": self._append,
        }  # fmt: skip

    def next_deadline(self) -> float | None:
        """When the present one has been left alone for too long."""
        return self._present.used + KEEP_S if self._present is not None and not self._present.busy else None

    def tick(self) -> None:
        """Give up what was left alone."""
        if self._present is not None and not self._present.busy and time.monotonic() >= self._present.used + KEEP_S:
            self.restart()

    def restart(self) -> None:
        """Another connection, or nobody: the present one is over."""
        still, self._present = self._present, None
        if still is not None:
            if still.feed is not None:
                still.feed.put(None, _nothing)
            self._freeze(False, _nothing)

    def _find(self, message: Message) -> _Still:
        if self._present is None or self._present.identity != message.header.get("id"):
            raise LookupError("there is no such snapshot or restore; it was given up or took too long")
        self._present.used = time.monotonic()
        return self._present

    def _open(self, message: Message) -> None:
        answer = self._later(message.number)
        is_restore = message.header["op"] == "restore.open"
        if self._present is not None:
            answer({"refused": "CONFLICT", "path": "", "message": "another snapshot or restore is under way"}, b"")
            return
        if is_restore and self._mode != "rw":
            answer({"refused": "PERMISSION_DENIED", "path": "", "message": "tools may not write this workspace"}, b"")
            return
        still = self._present = _Still(os.urandom(8).hex())
        still.busy = True
        replace = bool(message.header.get("replace"))

        def begin() -> Callable[[], None]:
            outcome = self._guarded(lambda: self._prepare(still, is_restore, replace))
            return lambda: begun(outcome)

        def begun(outcome: Header) -> None:
            still.busy = False
            still.used = time.monotonic()
            answer({"id": still.identity, **outcome}, b"")
            if "refused" in outcome and self._present is still:
                self.restart()
            elif still.feed is not None:
                self._hand().submit(lambda: self._unpack(still))

        self._freeze(True, lambda: self._hand().submit(begin))

    def _prepare(self, still: _Still, is_restore: bool, replace: bool) -> Header:
        # Loaded only now: tarfile is a part of no sandbox that takes no snapshot.
        from codesdk.sandbox.runner import changes, pack, restore  # noqa: PLC0415

        root = self._workspace()
        if not is_restore:
            still.packer = pack.Packer(root)
            still.pieces = still.packer.pieces()
            return {}
        if replace:
            changes.clear(root.fd)
        elif os.listdir(root.fd):
            raise Refused("CONFLICT", "the workspace is not empty")
        still.feed = restore.Feed()
        return {}

    @staticmethod
    def _guarded(work: Callable[[], Header]) -> Header:
        try:
            return work()
        except Refused as refused:
            return {"refused": refused.error, "path": "", "message": refused.message}
        except OSError as error:
            why = refusal(error)
            return {"refused": why.error, "path": "", "message": why.message}
        except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
            return {"error": "BAD_REQUEST", "message": repr(error)}

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _read(self, message: Message) -> None:
        still, answer = self._find(message), self._later(message.number)
        length = min(int(message.header["length"]), MAX_PIECE)
        still.busy = True

        def work() -> Callable[[], None]:
            data = bytearray()
            outcome = self._guarded(lambda: self._take(still, length, data))
            return lambda: read(outcome, bytes(data))

        def read(outcome: Header, data: bytes) -> None:
            still.busy = False
            still.used = time.monotonic()
            answer(outcome, data)

        self._hand().submit(work)

    @staticmethod
    def _take(still: _Still, length: int, data: bytearray) -> Header:
        while still.pieces is not None and len(still.rest) < length:
            try:
                still.rest += next(still.pieces)
            except StopIteration:
                still.pieces = None
        data += still.rest[:length]
        del still.rest[:length]
        still.offset += len(data)
        return {"over": still.pieces is None and not still.rest, "left_out": still.packer.left_out}

    def _close(self, message: Message) -> None:
        self._find(message)
        self.restart()
        self._later(message.number)({"closed": True}, b"")

    # -- restores -----------------------------------------------------------------------------------------------------

    def _unpack(self, still: _Still) -> Callable[[], None]:
        """On the thread, until the last piece: each waits there for its turn, so only one is held."""
        from codesdk.sandbox.runner import changes, restore  # noqa: PLC0415 - loaded by `_prepare`

        feed = still.feed
        if feed is None:
            raise RuntimeError("a restore without a feed")

        def unpack() -> Header:
            return {"entries": restore.unpack(self._workspace(), feed)}

        still.outcome = outcome = self._guarded(unpack)
        if "entries" not in outcome:
            self._guarded(lambda: {"cleared": changes.clear(self._workspace().fd)})  # nothing, rather than a part
        self._guarded(feed.drain)
        return feed.finish

    def _append(self, message: Message) -> None:
        still, answer = self._find(message), self._later(message.number)
        if still.feed is None:
            raise LookupError("it is no restore")
        is_last = message.header["op"] == "restore.commit"

        def taken() -> None:
            failed = still.outcome if still.outcome is not None and "entries" not in still.outcome else None
            answer(failed or {"taken": True}, b"")

        def committed() -> None:
            answer(still.outcome or {"error": "BAD_REQUEST", "message": "it was given up"}, b"")
            if self._present is still:
                still.feed = None
                self.restart()

        if is_last:
            still.feed.put(None, committed)
        else:
            # From the thread to the loop: an answer is written there.
            still.feed.put(message.body, lambda: self._hand_back(taken))

    def _hand_back(self, call: Callable[[], None]) -> None:
        self._hand().loop.post(call)


def _nothing() -> None:
    """No one waits."""
