"""The byte channel to a stdio server, and its implementation as a process in a sandbox."""

from __future__ import annotations

from typing import Protocol

from codesdk.sandbox.port import ExecRequest, ExitKind, Sandbox

READ_BYTES = 256 * 1024
"""Bytes per read."""
BUFFER_BYTES = 1024 * 1024
"""Bytes of unread stdout that the runner buffers before the server blocks."""
_MAX_STDERR_CHARS = 600
"""Characters of a server's last stderr output shown."""


class ByteChannel(Protocol):
    """Used from two threads: one reads, one writes."""

    def receive(self, wait_s: float) -> bytes | None:
        """Some bytes; None on timeout, b"" at the end."""
        ...

    def send(self, data: bytes) -> bool:
        """Write all of it; False if the server no longer reads."""
        ...

    def ended(self) -> str | None:
        """How it ended and the end of its stderr, as text; None while it runs."""
        ...

    def close(self) -> None:
        """End the server."""
        ...


class ExecChannel:
    """A process in a sandbox, with MCP on stdin and stdout."""

    def __init__(self, sandbox: Sandbox, request: ExecRequest, write_s: float = 20.0) -> None:
        """Start the process. `write_s`: seconds that it may leave its stdin unread.

        Raises:
            SandboxGone, StaleGeneration: as `Processes.start`.
        """
        self._sandbox = sandbox
        self._key = (request.call, request.attempt)
        self._write_s = write_s
        self._offset = 0
        sandbox.processes.start(
            request.model_copy(update={"stdin_open": True, "flow": True, "keep_bytes": BUFFER_BYTES})
        )

    def receive(self, wait_s: float) -> bytes | None:
        """Some bytes; see the port."""
        found = self._sandbox.processes.output(*self._key, "stdout", self._offset, length=READ_BYTES, wait_s=wait_s)
        if found is None:
            return b""
        self._offset = found.offset + len(found.data)
        if found.data:
            return found.data
        return b"" if found.over and found.seen <= self._offset else None

    def send(self, data: bytes) -> bool:
        """Write all of it; see the port."""
        found = self._sandbox.processes.write(*self._key, data, wait_s=self._write_s)
        return found is not None and found.open

    def ended(self) -> str | None:
        """How it ended; see the port."""
        found = next((each for each in self._sandbox.processes.list() if each.call == self._key[0]), None)
        if found is None or found.result is None:
            return None
        words = self._sandbox.processes.output(*self._key, "stderr", 0, length=READ_BYTES)
        last = words.data[-_MAX_STDERR_CHARS:].decode("utf-8", "replace").strip() if words is not None else ""
        result = found.result
        how = f"exit code {result.exit_code}" if result.kind is ExitKind.EXITED else result.error or result.kind.value
        return "; last line: ".join(part for part in (how, last) if part)

    def close(self) -> None:
        """Kill the process tree."""
        self._sandbox.cancel(*self._key)
