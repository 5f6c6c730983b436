"""The files that a call names: what they are when a person is asked, and whether they are the same when it runs.

A name is opened as the program would open it: from the exec's directory, links followed, with the tool's rights. A mark
says where that led and what was there. Just before such an exec is started every tool stands still and the marks are
made again; the others go on a moment after the start, when the program has had time to open what it was given.
"""

from __future__ import annotations

import os
import stat
import time

from codesdk.sandbox.runner import digest
from codesdk.sandbox.runner.beneath import Refused, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from codesdk.sandbox.runner.beneath import Root
    from codesdk.sandbox.runner.loop import Hand
    from codesdk.sandbox.runner.running import Key
    from codesdk.sandbox.runner.wire import Message

    Mark = list[Any]
    """Kind, where the name led, `sha256:` of a file's content, size in bytes."""

MAX_NAMES = 1024
MAX_BYTES = 256 * 1024 * 1024
"""Content that is hashed for one call, a second's work; what comes after it is told as `large`, and bound by its size."""
SETTLE_S = 1.0
"""How long the others stand still after the start, or until its end: a Python here has opened its script after 30 ms."""
MAX_LATE = 32
_PIECE = 1 << 20
_UNREAL = ("/proc/", "/sys/", "/dev/")
_SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - a place where tools write files, unlike the rest of /dev


def look(root: Root, names: list[list[str]]) -> list[Mark]:
    """A mark for each name, which is a path and the directory that it starts from."""
    if len(names) > MAX_NAMES:
        raise Refused("TOO_LARGE", "more than " + str(MAX_NAMES) + " names at once")
    left, found = MAX_BYTES, []
    for path, directory in names:
        mark = _mark(root, path, directory, left)
        if mark[0] == "file":
            left -= mark[3]
        found.append(mark)
    return found


def _mark(root: Root, path: str, directory: str, left: int) -> Mark:
    try:
        base = root.open(relative(directory, root.workspace), os.O_RDONLY | os.O_DIRECTORY)
        try:
            # O_PATH: nothing is opened yet, so a FIFO or a device does not notice.
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=base)
        finally:
            os.close(base)
    except (Refused, FileNotFoundError, NotADirectoryError, ValueError):
        return ["absent", "", None, 0]
    except PermissionError:
        return ["closed", "", None, 0]
    except OSError:
        return ["other", "", None, 0]
    try:
        return _describe(fd, left)
    finally:
        os.close(fd)


def _describe(fd: int, left: int) -> Mark:
    where = "/proc/self/fd/" + str(fd)
    real, about = os.fsencode(os.readlink(where)).decode("utf-8", "backslashreplace"), os.fstat(fd)
    if stat.S_ISDIR(about.st_mode):
        return ["directory", real, None, 0]
    unreal = real.startswith(_UNREAL) and not real.startswith(_SHARED_MEMORY)
    if unreal or not stat.S_ISREG(about.st_mode):
        return ["other", real, None, 0]
    if about.st_size > left:
        return ["large", real, None, about.st_size]
    found, size = digest.sha256(), 0
    try:
        opened = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ["closed", real, None, about.st_size]
    try:
        while size <= left and (part := os.read(opened, _PIECE)):
            found.update(part)
            size += len(part)
    finally:
        os.close(opened)
    return ["file", real, digest.text(found), size] if size <= left else ["large", real, None, size]


def difference(wanted: list[list[Any]], found: list[Mark]) -> str:
    """What is not as it was, in words; empty where all is. Wanted: path, directory, and the mark of each."""
    for (path, _, *mark), now in zip(wanted, found):
        if mark != now:
            return str(path) + " " + _change(mark, now)
    return ""


def _change(before: list[Any], now: Mark) -> str:
    if now[0] == "absent":
        return "is not there any more"
    if before[0] == "absent":
        return "was not there and is now"
    if before[1] != now[1]:
        return "leads to another file now"
    return "has another content now"


class Checks:
    """Starts that wait until their files were looked at. One at a time; all of it runs on the loop's thread."""

    def __init__(
        self,
        workspace: Callable[[], Root],
        hand: Callable[[], Hand],
        freeze: Callable[[bool, Callable[[], None]], None],
        serve: Callable[[Message], None],
        refuse: Callable[[int, dict[str, Any], bytes], None],
        runs: Callable[[Key], bool],
    ) -> None:
        """Freeze: (stop or continue, done) for all tools. Serve: take a request up again, as if it came now."""
        self._runs = runs
        self._workspace = workspace
        self._hand = hand
        self._freeze = freeze
        self._serve = serve
        self._refuse = refuse
        self._present: Key | None = None
        self._asked: Message | None = None
        self._passed: Key | None = None
        self._late: list[Message] = []
        self._until: float | None = None

    def keep(self, key: Key, message: Message, wanted: list[list[Any]]) -> bool:
        """Whether the start must wait: for its own files, or for another's. It is served again when it may begin."""
        if self._passed == key:
            self._passed = None
            return False
        if self._present == key:
            self._asked = message  # asked again: the answer goes to the last one
            return True
        if self._present is not None:
            if len(self._late) < MAX_LATE:
                self._late.append(message)
            else:
                self._refuse(message.number, {"error": "BUSY", "message": "too much waits for a check of files"}, b"")
            return True
        if not wanted:
            return False
        self._begin(key, message, wanted)
        return True

    def _begin(self, key: Key, message: Message, wanted: list[list[Any]]) -> None:
        self._present, self._asked = key, message

        def work() -> Callable[[], None]:
            try:
                why = difference(wanted, look(self._workspace(), [item[:2] for item in wanted]))
            except (Refused, OSError, LookupError, TypeError, ValueError, MemoryError) as error:
                why = "cannot be looked at: " + str(error)
            return lambda: self._end(why)

        self._freeze(True, lambda: self._hand().submit(work))

    def _end(self, why: str) -> None:
        message, key = self._asked, self._present
        if message is not None and why:
            self._refuse(message.number, {"error": "FILES_CHANGED", "message": why}, b"")
        elif message is not None:
            self._passed = key
            self._serve(message)
        self._passed = None
        self._until = time.monotonic() + SETTLE_S

    def next_deadline(self) -> float | None:
        """When the others go on."""
        return self._until

    def tick(self) -> None:
        """Let the others go on, where it is time, and begin what came meanwhile."""
        if self._until is None or self._present is None:
            return
        if self._runs(self._present) and time.monotonic() < self._until:
            return
        self._until, self._present, self._asked = None, None, None
        late, self._late = self._late, []
        self._freeze(False, lambda: None)
        for waited in late:
            self._serve(waited)

    def restart(self) -> None:
        """Another connection: it asks again for what it wants."""
        self._asked = None
        self._late.clear()
