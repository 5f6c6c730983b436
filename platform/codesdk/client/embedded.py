"""Runs CodeSDK as a child of the application, and gives it a client."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from codesdk.client.aio.client import AsyncClient
from codesdk.client.aio.concurrency import in_thread
from codesdk.client.sync.client import Client
from codesdk.errors import ExitCode, Fault

SANDBOX = "sandbox"
"""The shipped bundle for applications whose own code makes the calls."""
STOP_S = 60.0
"""Seconds for an orderly stop: the worker drains for ten, and removes the sandboxes."""
_MODULE = "codesdk.cli.stack.daemon"
_MAX_REASON_CHARS = 4000


class StartFailed(Fault):
    """CodeSDK could not be started as a child of this process."""

    code = "START_FAILED"
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class _Daemon(NamedTuple):
    process: subprocess.Popen[bytes]
    url: str
    key: str

    def stop(self) -> None:
        """End it in order: it closes its sessions and removes their sandboxes."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class EmbeddedClient(Client):
    """A client of a CodeSDK that this process runs. Closing it ends both."""

    def __init__(self, daemon: _Daemon) -> None:
        """Use `embedded`."""
        self._daemon = daemon
        super().__init__(daemon.url, daemon.key)

    def close(self) -> None:
        """Close the connections and end CodeSDK, with all sessions."""
        super().close()
        self._daemon.stop()


class AsyncEmbeddedClient(AsyncClient):
    """Likewise, asynchronous."""

    def __init__(self, daemon: _Daemon) -> None:
        """Use `async_embedded`."""
        self._daemon = daemon
        super().__init__(daemon.url, daemon.key)

    async def close(self) -> None:
        """Close the connections and end CodeSDK, with all sessions."""
        await super().close()
        await in_thread(self._daemon.stop)


def embedded(
    *,
    data_dir: str | Path | None = None,
    policies: str | Path = SANDBOX,
    profile: str | None = None,
    sandbox: str | None = None,
) -> EmbeddedClient:
    """Start CodeSDK as a child of this process and return a client of it. Takes seconds, the first time minutes.

    It serves on a free port of the loopback interface, and ends with the client, or with this process.

    Args:
        data_dir: directory of database, keys and logs. None: `CODESDK_DATA_DIR`, else the user's state directory.
        policies: directory of a policy bundle, or the name of a shipped one. `sandbox` allows what stays in the sandbox, and
            asks about the network.
        profile: the profile whose image is built first. None: `default`.
        sandbox: `docker`, `local` (processes behind bubblewrap) or `plain` (no isolation). None: the setting.

    Raises:
        StartFailed: the reason why it could not start.
    """
    return EmbeddedClient(_start(_options(data_dir=data_dir, policies=policies, profile=profile, sandbox=sandbox)))


async def async_embedded(
    *,
    data_dir: str | Path | None = None,
    policies: str | Path = SANDBOX,
    profile: str | None = None,
    sandbox: str | None = None,
) -> AsyncEmbeddedClient:
    """Like `embedded`, with an asynchronous client.

    Raises:
        StartFailed: the reason why it could not start.
    """
    options = _options(data_dir=data_dir, policies=policies, profile=profile, sandbox=sandbox)
    return AsyncEmbeddedClient(await in_thread(partial(_start, options)))


def _options(**given: Any) -> list[str]:
    options = [(f"--{name.replace('_', '-')}", str(value)) for name, value in given.items() if value is not None]
    return [word for option in options for word in option]


def _start(options: Sequence[str]) -> _Daemon:
    argv = [sys.executable, "-m", _MODULE, "--with-parent", "--port", "0", *options]
    with tempfile.TemporaryFile() as progress:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=progress)
        assert process.stdout is not None  # noqa: S101 (it is a pipe)
        try:
            with process.stdout as out:
                line = out.readline()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if not line:
            process.wait()
            raise StartFailed(
                f"CodeSDK did not start: {_last_line(progress)}", advice="`codesdk doctor` checks the machine."
            )
    ready = json.loads(line)
    return _Daemon(process, str(ready["url"]), str(ready["key"]))


def _last_line(progress: IO[bytes]) -> str:
    progress.seek(0)
    lines = progress.read()[-_MAX_REASON_CHARS:].decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else "it printed no reason."
