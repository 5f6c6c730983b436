"""Starts a program as the tool from a root process, by posix_spawn or by fork.

Spawn copies no memory, but its caller needs the tool's real uid meanwhile, and a tool could kill it in that moment.
Fork takes a millisecond longer, and only its child takes the tool's uid.
"""

from __future__ import annotations

import errno
import os

from codesdk.sandbox.runner import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any
else:
    import _signal as signal

_PYTHON_SIGNALS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
"""Signals that Python handles or ignores; a new program expects their defaults."""
_ERROR = 127
_WORD = 16


class Program:
    """A program to start, with its descriptors or its terminal."""

    def __init__(self, argv: list[str], environment: dict[str, str], stdio: list[int], terminal: str | None) -> None:
        self.argv = argv
        self.environment = environment
        self.stdio = stdio
        self.terminal = terminal

    def spawn(self) -> int:
        """Start the program with this process's real and effective uid, and return its pid.

        Raises:
            OSError: it cannot be run.
        """
        actions: list[Any] = [(os.POSIX_SPAWN_DUP2, fd, target) for target, fd in enumerate(self.stdio)]
        if self.terminal is not None:
            # The new process opens it as a session leader, so it becomes the controlling terminal.
            opened = (os.POSIX_SPAWN_OPEN, 0, self.terminal, os.O_RDWR, 0)
            actions = [opened, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]

        def run(path: str) -> int:
            return os.posix_spawn(
                path, self.argv, self.environment,
                file_actions=actions, setsid=True, setsigmask=(), setsigdef=_PYTHON_SIGNALS,
            )  # fmt: skip

        return self._try_candidates(run)

    def fork(self, uid: int) -> int:
        """Start the program as this uid and return its pid. This process's real or saved uid must allow the change.

        Raises:
            OSError: it cannot be run, or no process is available.
        """
        error_read, error_write = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(error_read)  # this process lives on after a fork bomb, and would run out of descriptors
            os.close(error_write)
            raise
        if pid == 0:
            self._become(uid, error_write)
        os.close(error_write)
        try:
            code = os.read(error_read, _WORD)  # empty once the program has started
        finally:
            os.close(error_read)
        if code:
            os.waitpid(pid, 0)
            raise OSError(int(code), os.strerror(int(code)))
        return pid

    def _become(self, uid: int, error_write: int) -> None:
        """Become the program, in the forked child. Does not return."""
        code = errno.EIO
        try:
            kernel.set_thread_uids(uid, uid, uid)
            os.setsid()
            if self.terminal is not None:
                opened = os.open(self.terminal, os.O_RDWR)
                self.stdio = [opened] * 3
            for target, fd in enumerate(self.stdio):
                os.dup2(fd, target)
            for number in _PYTHON_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            self._try_candidates(lambda path: os.execve(path, self.argv, self.environment))  # noqa: S606 - argv, no shell
        except OSError as error:
            code = error.errno or code
        except (TypeError, ValueError):
            code = errno.EINVAL
        finally:
            os.write(error_write, b"%d" % code)
            os._exit(_ERROR)

    def _try_candidates(self, run: Any) -> int:
        denied: OSError | None = None
        for path in _candidates(self.argv[0], self.environment):
            try:
                return int(run(path))
            except (FileNotFoundError, NotADirectoryError):
                if "/" in self.argv[0]:
                    raise
            except PermissionError as error:
                denied = error  # a later PATH directory may have an executable one
        raise denied or FileNotFoundError(errno.ENOENT, "no such program on PATH")


def _candidates(name: str, environment: dict[str, str]) -> list[str]:
    """Return the paths at which the program exists; looking first is cheaper than a failed spawn."""
    if "/" in name:
        return [name]
    paths = [(place or ".") + "/" + name for place in environment.get("PATH", os.defpath).split(":")]
    return [path for path in paths if os.access(path, os.F_OK)]
