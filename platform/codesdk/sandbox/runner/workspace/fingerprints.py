"""Fingerprints the files that a call names, and checks before the exec that they haven't changed since the approval.

A name is opened as the program would open it: from any directory that the call may change to, following links, with the
tool's rights. Its fingerprint records where it led and what was there. Before such an exec starts, all tools are frozen and the
fingerprints are taken again. The other tools resume a moment after the start, once the program has had time to open
its files.
"""

from __future__ import annotations

import errno
import os
import stat
import time

from codesdk.sandbox.runner.workspace import digest
from codesdk.sandbox.runner.workspace.names import spell, unspell
from codesdk.sandbox.runner.workspace.root import OperationRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from codesdk.sandbox.runner.event_loop import SerialExecutor
    from codesdk.sandbox.runner.execution.exec_lifecycle import Key
    from codesdk.sandbox.runner.protocol.wire import Message
    from codesdk.sandbox.runner.workspace.root import Root

    Fingerprint = list[Any]
    """Kind, resolved path, `sha256:` digest of a file's content, size in bytes."""

MAX_NAMES = 1024
MAX_BYTES = 256 * 1024 * 1024
"""Maximum bytes hashed per call, about a second. Further files are reported as `large` and compared by size."""
SETTLE_S = 1.0
"""How long other tools stay frozen after the start, at most until its end. Python opens its script within 30 ms."""
MAX_QUEUED = 32
_PIECE = 1 << 20
_MAX_LINKS = 40
"""As the kernel's."""
_EXECUTABLE = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
_UNBINDABLE: Fingerprint = ["unbindable", "", None, 0]
_VIRTUAL_FILE_SYSTEMS = ("/proc/", "/sys/", "/dev/")
_SHARED_MEMORY = "/dev/shm/"  # noqa: S108 - a place where tools write files, unlike the rest of /dev


def fingerprint_files(root: Root, names: list[list[str]], home: str) -> list[Fingerprint]:
    """Fingerprint each name, given as path and working directory. `home`: what the directory `~` stands for."""
    if len(names) > MAX_NAMES:
        raise OperationRefused("TOO_LARGE", "more than " + str(MAX_NAMES) + " names at once")
    found = [_fingerprint(root, path, directory, home, 0) for path, directory in names]
    left = MAX_BYTES
    # The smallest first: otherwise a call that names a large file as well would leave its script unhashed.
    for number in sorted(range(len(names)), key=lambda number: found[number][3]):
        if found[number][0] == "large":
            path, directory = names[number]
            found[number] = _fingerprint(root, path, directory, home, left)
        if found[number][0] == "file":
            left -= found[number][3]
    return found


def _fingerprint(root: Root, path: str, directory: str, home: str, left: int) -> Fingerprint:
    path, directory = unspell(path), unspell(directory)
    try:
        fd = _open(root, path, directory, home)
    except _Unbindable:
        return _UNBINDABLE
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return ["absent", "", None, 0]
    except PermissionError:
        return ["closed", "", None, 0]
    except OSError:
        return ["other", "", None, 0]
    try:
        return _describe(fd, left)
    finally:
        os.close(fd)


class _Unbindable(Exception):
    """The name leads to another file for each process, or to one of a process that does not exist yet."""


def _open(root: Root, path: str, directory: str, home: str) -> int:
    """Open what a name leads to, with O_PATH: that has no effect on a FIFO or a device.

    Goes from one directory to the next, as the kernel does, but not through the links of /proc: `cwd`, `root` and those in
    `fd` lead the program elsewhere than the runner.
    """
    if directory == "~" or directory.startswith("~/"):
        directory = home + directory[1:]
    whole = path if path.startswith("/") else directory + "/" + path
    rest, links, proc = _parts(whole), 0, _Proc()
    here = _start(root, whole)
    try:
        while rest:
            part = rest.pop()
            target, below = _enter(part, here, rest, proc)
            if target:
                links += 1
                rest += _parts(target)
                below = _start(root, target) if target.startswith("/") else os.dup(here)
            if links > _MAX_LINKS:
                os.close(below)
                raise OSError(errno.ELOOP, "too many links")
            os.close(here)
            here = below
    except BaseException:
        os.close(here)
        raise
    return here


def _parts(path: str) -> list[str]:
    """Return the names in a path, the first one last."""
    return [part for part in path.split("/")[::-1] if part not in ("", ".")]


def _enter(part: str, here: int, rest: list[str], proc: _Proc) -> tuple[str, int]:
    """Open one name; for a link return its target and -1."""
    try:
        below = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    except FileNotFoundError:
        if os.fstat(here).st_dev == proc.device:
            raise proc.refusal(rest) from None
        raise
    about = os.fstat(below)
    if not stat.S_ISLNK(about.st_mode):
        return "", below
    os.close(below)
    target = os.readlink(part, dir_fd=here)
    if about.st_dev == proc.device:
        proc.is_own = proc.is_own or part in ("self", "thread-self")
        if ":" in target or not target[:1].isalnum():  # `pipe:[1]`, `/workspace`; the others stay in /proc
            raise proc.refusal(rest)
    return target, -1


class _Proc:
    """The way through /proc, if the name leads there."""

    def __init__(self) -> None:
        self.device = os.stat("/proc").st_dev
        self.is_own = False
        """It led through `self`."""

    def refusal(self, rest: list[str]) -> Exception:
        # The program's own descriptors, such as /dev/stdin, are no files: the line names what it opens them with.
        return OSError(errno.ELOOP, "a link of /proc") if self.is_own and not rest else _Unbindable()


def _start(root: Root, path: str) -> int:
    return os.open("/" if path.startswith("/") else ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=root.fd)


def _describe(fd: int, left: int) -> Fingerprint:
    where = "/proc/self/fd/" + str(fd)
    real, about = spell(os.readlink(where)), os.fstat(fd)
    if stat.S_ISDIR(about.st_mode):
        return ["directory", real, None, 0]
    is_virtual = real.startswith(_VIRTUAL_FILE_SYSTEMS) and not real.startswith(_SHARED_MEMORY)
    if is_virtual or not stat.S_ISREG(about.st_mode):
        return ["other", real, None, 0]
    if about.st_size > left:
        return ["large", real, None, about.st_size]
    found, size = digest.sha256(), 0
    try:
        # Non-blocking: a tool's lease on the file would hold this thread up for as long as the kernel lets it, 45 seconds.
        opened = os.open(where, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except BlockingIOError:
        return _UNBINDABLE
    except OSError:
        can_change = about.st_uid == os.geteuid()
        return _UNBINDABLE if can_change and about.st_mode & _EXECUTABLE else ["closed", real, None, about.st_size]
    try:
        while size <= left and (part := os.read(opened, _PIECE)):
            found.update(part)
            size += len(part)
    finally:
        os.close(opened)
    return ["file", real, digest.text(found), size] if size <= left else ["large", real, None, size]


def first_difference(wanted: list[list[Any]], found: list[Fingerprint]) -> str:
    """Describe the first difference; empty if none. `wanted`: path, directory and expected fingerprint of each."""
    for (path, _, *fingerprint), now in zip(wanted, found):
        if now == _UNBINDABLE:
            return (
                str(path) + " cannot be bound: it leads through /proc, another program holds it, or it cannot be read"
            )
        if fingerprint != now:
            return str(path) + " " + _change(fingerprint, now)
    return ""


def _change(before: list[Any], now: Fingerprint) -> str:
    if now[0] == "absent":
        return "is not there any more"
    if before[0] == "absent":
        return "was not there and is now"
    if before[1] != now[1]:
        return "leads to another file now"
    return "has another content now"


class PreExecCheck:
    """Checks the bound files of starts, one start at a time. Runs on the loop's thread."""

    def __init__(
        self,
        workspace: Callable[[], Root],
        home: str,
        executor: Callable[[], SerialExecutor],
        freeze: Callable[[bool, Callable[[bool], None]], None],
        serve: Callable[[Message], None],
        refuse: Callable[[int, dict[str, Any], bytes], None],
        runs: Callable[[Key], bool],
    ) -> None:
        """`freeze(stop, done)`: stop or resume all tools; `done` gets whether all have. `serve`: process a request again."""
        self._runs = runs
        self._workspace = workspace
        self._home = home
        self._executor = executor
        self._freeze = freeze
        self._serve = serve
        self._refuse = refuse
        self._current: Key | None = None
        self._current_message: Message | None = None
        self._verified: Key | None = None
        self._queued: list[Message] = []
        self._until: float | None = None

    def must_wait(self, key: Key, message: Message, wanted: list[list[Any]]) -> bool:
        """Return whether the start must wait for its own check or another's; if so, it is served again later."""
        if self._verified == key:
            self._verified = None
            return False
        if self._current == key:
            self._current_message = message  # a repeated request: only the last one is answered
            return True
        if self._current is not None:
            if len(self._queued) < MAX_QUEUED:
                self._queued.append(message)
            else:
                self._refuse(message.number, {"error": "BUSY", "message": "too many starts wait for a file check"}, b"")
            return True
        if not wanted:
            return False
        self._begin(key, message, wanted)
        return True

    def _begin(self, key: Key, message: Message, wanted: list[list[Any]]) -> None:
        self._current, self._current_message = key, message

        def work() -> Callable[[], None]:
            try:
                names = [item[:2] for item in wanted]
                why = first_difference(wanted, fingerprint_files(self._workspace(), names, self._home))
            except (OperationRefused, OSError, LookupError, TypeError, ValueError, MemoryError) as error:
                why = "cannot be checked: " + str(error)
            return lambda: self._end(why)

        def frozen(all_stopped: bool) -> None:
            if all_stopped:
                self._executor().submit(work)
            else:
                self._end("cannot be looked at: other programs in the sandbox do not stop, and may change it")

        self._freeze(True, frozen)

    def _end(self, why: str) -> None:
        message, key = self._current_message, self._current
        if message is not None and why:
            self._refuse(message.number, {"error": "FILES_CHANGED", "message": why}, b"")
        elif message is not None:
            self._verified = key
            self._serve(message)
        self._verified = None
        self._until = time.monotonic() + SETTLE_S

    def next_deadline(self) -> float | None:
        """Return when the other tools are resumed."""
        return self._until

    def tick(self) -> None:
        """Resume the other tools if due, and serve the queued starts."""
        if self._until is None or self._current is None:
            return
        if self._runs(self._current) and time.monotonic() < self._until:
            return
        self._until, self._current, self._current_message = None, None, None
        queued, self._queued = self._queued, []
        self._freeze(False, lambda _: None)
        for waited in queued:
            self._serve(waited)

    def restart(self) -> None:
        """Drop queued starts for a new connection; it sends them again."""
        self._current_message = None
        self._queued.clear()
