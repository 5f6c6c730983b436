"""Stdin and output of one exec, on the runner's side: pipes or a terminal."""

from __future__ import annotations

import os
import select
import struct

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.event_loop import EventLoop
from codesdk.sandbox.runner.execution.spool import STREAMS, Spool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

MAX_PENDING = 1024 * 1024
"""Maximum buffered stdin bytes."""
_READ_BYTES = 64 * 1024
_END_OF_FILE = b"\x04"
_SET_WINDOW_SIZE = 0x5414  # TIOCSWINSZ
_WINDOW = struct.Struct("HHHH")


class Stdio:
    """Stdin and output streams of one exec. Runs on the loop's thread."""

    def __init__(self, loop: EventLoop, spool: Spool, on_end: Callable[[], None]) -> None:
        """`on_end`: called when an output reaches EOF."""
        self._loop = loop
        self._spool = spool
        self._on_end = on_end
        self._outputs: dict[int, int] = {}
        self._paused_fds: list[int] = []
        self._draining = False
        self._input = -1
        self._terminal = -1
        self._pending = bytearray()
        self._written = 0
        self._input_ending = True
        self.taken = 0
        """Bytes of stdin accepted so far."""

    # -- opening ------------------------------------------------------------------------------------------------------

    def open_pipes(self, with_input: bool) -> list[int]:
        """Open pipes for the tool; returns its stdin, stdout and stderr.

        Raises:
            OSError: no descriptors available; nothing is left open.
        """
        theirs: list[int] = []
        try:
            if with_input:
                stdin, self._input = os.pipe()
                theirs.append(stdin)
                os.set_blocking(self._input, False)
            else:
                theirs.append(os.open("/dev/null", os.O_RDONLY))
            for stream in range(len(STREAMS)):
                ours, end = os.pipe()
                theirs.append(end)
                os.set_blocking(ours, False)
                self._outputs[ours] = stream
        except OSError:
            _close(theirs)
            self.close()
            raise
        return theirs

    def open_terminal(self, size: dict[str, Any], uid: int) -> tuple[list[int], str]:
        """Open a terminal that the tool's user owns; returns its descriptor in a list, and its path.

        Raises:
            OSError: no terminal available.
        """
        has_own_uid = uid != os.getuid()
        if has_own_uid:
            # The opener owns it. Only the effective uid changes: tools could signal a runner with their real uid.
            kernel.set_thread_uids(-1, uid, -1)
        try:
            ours, theirs = os.openpty()
        finally:
            if has_own_uid:
                kernel.set_thread_uids(-1, 0, -1)
        self._terminal = self._input = ours
        self._outputs[ours] = 0
        os.set_blocking(ours, False)
        self.resize(int(size["rows"]), int(size["cols"]))
        return [theirs], os.ttyname(theirs)

    def watch(self) -> None:
        """Start reading and writing."""
        for fd in self._outputs:
            self._loop.watch(fd, select.POLLIN, self._on_ready)
        if self._input >= 0 and self._input != self._terminal:
            self._flush()

    # -- input --------------------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """Bytes of stdin that can be accepted now; 0 if closed."""
        return max(0, MAX_PENDING - (len(self._pending) - self._written)) if self.is_open else 0

    @property
    def is_open(self) -> bool:
        """Whether stdin is open."""
        return self._input >= 0 and not self._input_ending

    def begin(self, data: bytes, more: bool) -> None:
        """Queue the request's stdin. `more`: keep stdin open for further input."""
        self._pending += data
        self.taken = len(data)
        self._input_ending = not more
        if self._terminal >= 0 and data:
            self._flush()

    def write(self, data: bytes, end: bool) -> int:
        """Accept as many bytes as there is room for and return the count. `end` takes effect once all are accepted."""
        if not self.is_open:
            return 0
        count = min(len(data), self.room)
        self._pending += data[:count]
        self.taken += count
        if end and count == len(data):
            if self._terminal >= 0:
                self._pending += _END_OF_FILE  # closing a terminal would end its output too: send Ctrl-D
            else:
                self._input_ending = True
        self._flush()
        return count

    def _flush(self) -> None:
        try:
            while self._written < len(self._pending):
                with memoryview(self._pending) as view:
                    self._written += os.write(self._input, view[self._written : self._written + _READ_BYTES])
        except BlockingIOError:
            self._watch_input(waiting=True)
            return
        except OSError:
            self._end_input()  # the tool has closed its stdin
            return
        self._pending.clear()
        self._written = 0
        if self._input_ending:
            self._end_input()
        else:
            self._watch_input(waiting=False)

    def _watch_input(self, waiting: bool) -> None:
        if self._input == self._terminal:
            if self._terminal in self._outputs:
                self._loop.watch(self._terminal, select.POLLIN | (select.POLLOUT if waiting else 0), self._on_ready)
        elif waiting:
            self._loop.watch(self._input, select.POLLOUT, lambda *_: self._flush())
        else:
            self._loop.forget(self._input)

    def _end_input(self) -> None:
        self._pending.clear()
        self._written = 0
        self._input_ending = True
        if self._input >= 0 and self._input != self._terminal:
            self._loop.forget(self._input)
            os.close(self._input)
            self._input = -1

    def resize(self, rows: int, cols: int) -> bool:
        """Resize the terminal and notify its programs. Returns False if there is no terminal."""
        if self._terminal < 0:
            return False
        import fcntl  # noqa: PLC0415 - few sandboxes have a terminal

        fcntl.ioctl(self._terminal, _SET_WINDOW_SIZE, _WINDOW.pack(rows, cols, 0, 0))
        return True

    # -- output -------------------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether all outputs reached EOF."""
        return not self._outputs

    def _on_ready(self, fd: int, events: int) -> None:
        if events & select.POLLOUT:
            self._flush()
        if events & ~select.POLLOUT and fd in self._outputs:
            self._read(fd)

    def _read(self, fd: int) -> bool:
        """Read once. Returns False if nothing is available."""
        if not self._spool.room(self._outputs[fd]) and not self._draining:
            self._loop.forget(fd)  # the tool blocks, as on any full pipe
            self._paused_fds.append(fd)
            return False
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            data = b""  # reading a terminal fails once no program has it open
        if data:
            self._spool.add(self._outputs[fd], data)
            return True
        self._forget(fd)
        self._on_end()
        return False

    def _forget(self, fd: int) -> None:
        self._loop.forget(fd)
        os.close(fd)
        del self._outputs[fd]
        if fd == self._terminal:
            self._terminal = self._input = -1
            self._end_input()

    def resume_reading(self) -> None:
        """Resume reading after the reader made room."""
        paused, self._paused_fds = self._paused_fds, []
        for fd in paused:
            if fd in self._outputs:
                self._loop.watch(fd, select.POLLIN, self._on_ready)

    def drain(self) -> None:
        """Read all available output. It is at most a pipe's capacity, so it needs no room check."""
        self._draining = True
        self.resume_reading()
        for fd in list(self._outputs):
            while fd in self._outputs and self._read(fd):
                pass

    def close(self) -> None:
        """Close all descriptors."""
        self._end_input()
        for fd in list(self._outputs):
            self._forget(fd)


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
