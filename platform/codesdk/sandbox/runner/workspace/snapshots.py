"""Takes and restores snapshots of the workspace while all tools are frozen."""

from __future__ import annotations

import os
import time

from codesdk.sandbox.runner.workspace.root import OperationRefused, catch_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Callable

    from codesdk.sandbox.runner.event_loop import SerialExecutor
    from codesdk.sandbox.runner.protocol.wire import Message
    from codesdk.sandbox.runner.workspace.restore import Feed
    from codesdk.sandbox.runner.workspace.root import Root

    Header = dict[str, Any]
    ReplyLater = Callable[[int], Callable[[Header, bytes], None]]

IDLE_TIMEOUT_S = 30.0
"""Idle time after which a transfer is aborted and tools resume: a dead worker must not leave a sandbox frozen."""
MAX_PIECE = 4 * 1024 * 1024


class _Transfer:
    """A snapshot or restore in progress."""

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


class SnapshotService:
    """Runs one snapshot or restore at a time. Methods run on the loop's thread, the work on another."""

    def __init__(
        self,
        workspace: Callable[[], Root],
        executor: Callable[[], SerialExecutor],
        freeze: Callable[[bool, Callable[[], None]], None],
        reply_later: ReplyLater,
        mode: str,
    ) -> None:
        """`freeze(stop, done)`: stop or resume all tools. `mode`: the workspace mode."""
        self._workspace = workspace
        self._executor = executor
        self._freeze = freeze
        self._reply_later = reply_later
        self._mode = mode
        self._current: _Transfer | None = None
        self.handlers: dict[str, Callable[[Message], None]] = {
            "snapshot.open": self._open, "snapshot.read": self._read, "snapshot.close": self._close,
            "restore.open": self._open, "restore.append": self._append, "restore.commit": self._append,
        }  # fmt: skip

    def next_deadline(self) -> float | None:
        """Return when the current transfer times out."""
        return self._current.used + IDLE_TIMEOUT_S if self._current is not None and not self._current.busy else None

    def tick(self) -> None:
        """Abort the current transfer after its timeout."""
        if (
            self._current is not None
            and not self._current.busy
            and time.monotonic() >= self._current.used + IDLE_TIMEOUT_S
        ):
            self.restart()

    def restart(self) -> None:
        """Abort the current transfer for a new connection, and resume tools."""
        transfer, self._current = self._current, None
        if transfer is not None:
            if transfer.feed is not None:
                transfer.feed.put(None, lambda: None)
            self._freeze(False, lambda: None)

    def _find(self, message: Message) -> _Transfer:
        if self._current is None or self._current.identity != message.header.get("id"):
            raise LookupError("there is no such snapshot or restore; it was aborted or timed out")
        self._current.used = time.monotonic()
        return self._current

    def _open(self, message: Message) -> None:
        answer = self._reply_later(message.number)
        is_restore = message.header["op"] == "restore.open"
        if self._current is not None:
            answer({"refused": "CONFLICT", "path": "", "message": "another snapshot or restore is in progress"}, b"")
            return
        if is_restore and self._mode != "rw":
            answer({"refused": "PERMISSION_DENIED", "path": "", "message": "tools may not write this workspace"}, b"")
            return
        transfer = self._current = _Transfer(os.urandom(8).hex())
        transfer.busy = True
        replace = bool(message.header.get("replace"))

        def begin() -> Callable[[], None]:
            outcome = catch_errors(lambda: self._prepare(transfer, is_restore, replace))
            return lambda: begun(outcome)

        def begun(outcome: Header) -> None:
            transfer.busy = False
            transfer.used = time.monotonic()
            answer({"id": transfer.identity, **outcome}, b"")
            if "refused" in outcome and self._current is transfer:
                self.restart()
            elif transfer.feed is not None:
                self._executor().submit(lambda: self._unpack(transfer))

        self._freeze(True, lambda: self._executor().submit(begin))

    def _prepare(self, transfer: _Transfer, is_restore: bool, replace: bool) -> Header:
        # Loaded on demand: a sandbox that takes no snapshot never loads tarfile.
        from codesdk.sandbox.runner.workspace import directory_operations, pack, restore  # noqa: PLC0415

        root = self._workspace()
        if not is_restore:
            transfer.packer = pack.Packer(root)
            transfer.pieces = transfer.packer.pieces()
            return {}
        if replace:
            directory_operations.clear(root.fd)
        elif os.listdir(root.fd):
            raise OperationRefused("CONFLICT", "the workspace is not empty")
        transfer.feed = restore.Feed()
        return {}

    # -- snapshots ----------------------------------------------------------------------------------------------------

    def _read(self, message: Message) -> None:
        transfer, answer = self._find(message), self._reply_later(message.number)
        length = min(int(message.header["length"]), MAX_PIECE)
        transfer.busy = True

        def work() -> Callable[[], None]:
            data = bytearray()
            outcome = catch_errors(lambda: self._take(transfer, length, data))
            return lambda: read(outcome, bytes(data))

        def read(outcome: Header, data: bytes) -> None:
            transfer.busy = False
            transfer.used = time.monotonic()
            answer(outcome, data)

        self._executor().submit(work)

    @staticmethod
    def _take(transfer: _Transfer, length: int, data: bytearray) -> Header:
        while transfer.pieces is not None and len(transfer.rest) < length:
            try:
                transfer.rest += next(transfer.pieces)
            except StopIteration:
                transfer.pieces = None
        data += transfer.rest[:length]
        del transfer.rest[:length]
        transfer.offset += len(data)
        return {"over": transfer.pieces is None and not transfer.rest, "left_out": transfer.packer.left_out}

    def _close(self, message: Message) -> None:
        self._find(message)
        self.restart()
        self._reply_later(message.number)({"closed": True}, b"")

    # -- restores -----------------------------------------------------------------------------------------------------

    def _unpack(self, transfer: _Transfer) -> Callable[[], None]:
        """Unpack on the thread. Each piece is confirmed before the next, so only one is in memory."""
        from codesdk.sandbox.runner.workspace import directory_operations, restore  # noqa: PLC0415 - loaded by `_prepare`

        feed = transfer.feed
        if feed is None:
            raise RuntimeError("a restore without a feed")

        def unpack() -> Header:
            return {"entries": restore.unpack(self._workspace(), feed)}

        transfer.outcome = outcome = catch_errors(unpack)
        if "entries" not in outcome:
            catch_errors(
                lambda: {"cleared": directory_operations.clear(self._workspace().fd)}
            )  # leave an empty workspace instead of a partial one
        catch_errors(feed.drain)
        return feed.finish

    def _append(self, message: Message) -> None:
        transfer, answer = self._find(message), self._reply_later(message.number)
        if transfer.feed is None:
            raise LookupError("it isn't a restore")
        is_last = message.header["op"] == "restore.commit"

        def taken() -> None:
            failed = transfer.outcome if transfer.outcome is not None and "entries" not in transfer.outcome else None
            answer(failed or {"taken": True}, b"")

        def committed() -> None:
            answer(transfer.outcome or {"error": "BAD_REQUEST", "message": "it was aborted"}, b"")
            if self._current is transfer:
                transfer.feed = None
                self.restart()

        if is_last:
            transfer.feed.put(None, committed)
        else:
            # Answers are written on the loop, not on the thread.
            transfer.feed.put(message.body, lambda: self._executor().loop.post(taken))
