"""The context of probes: a shared sandbox, sandboxes per probe, and helpers to run programs in them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from codesdk.sandbox.port import Chunk, ExecRequest, Sandbox, Sandboxes, SandboxSpec
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sandbox.selfcheck.expectations import CompletedExec, ProbeFailed, expect_equal, expect_exit

DEADLINE_S = 30.0
"""Wall time limit of a probe's exec; a loaded machine with two cores needs at most 3 s."""


@dataclass(frozen=True)
class Plan:
    """Settings for the sandboxes of a run."""

    instance: str
    image: str
    """Image id or digest."""
    runtime: str = Profile().runtime
    profile: dict[str, Any] | None = None
    """Changes to the default profile for all sandboxes of the run."""


class ProbeContext:
    """Sandboxes of one run. Not thread-safe; probes that need threads start their own."""

    def __init__(self, sandboxes: Sandboxes, plan: Plan, *, uids: Iterator[int], ids: Callable[[], str]) -> None:
        """`uids`: yields uids that no other sandbox of the host has. `ids`: returns a new id at each call."""
        self.sandboxes = sandboxes
        self.plan = plan
        self._uids = uids
        self._ids = ids
        self._calls = itertools.count(1)
        self._shared: Sandbox | None = None

    def spec(self, **profile: Any) -> SandboxSpec:
        """Return the spec of a new sandbox; the arguments change the profile."""
        runtime = {"runtime": self.plan.runtime, "grace_s": 0.3}
        return SandboxSpec(
            owner=f"sbx_{self._ids()}",
            instance=self.plan.instance,
            profile=Profile(**{**runtime, **(self.plan.profile or {}), **profile}),
            image=self.plan.image,
            tool_uid=next(self._uids),
            generation=1,
        )

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox that harmless probes share."""
        if self._shared is None:
            self._shared = self.sandboxes.open(self.spec())
        return self._shared

    def renew(self) -> None:
        """Destroy the shared sandbox; the next probe gets a new one."""
        shared, self._shared = self._shared, None
        if shared is not None:
            self.sandboxes.destroy(shared.owner)

    @contextmanager
    def own(self, **profile: Any) -> Iterator[Sandbox]:
        """Open a sandbox for one probe, and destroy it afterwards."""
        made = self.sandboxes.open(self.spec(**profile))
        try:
            yield made
        finally:
            self.sandboxes.destroy(made.owner)

    def request(self, *argv: str, **more: Any) -> ExecRequest:
        """Build an exec request with a new call id."""
        return ExecRequest(argv=argv, **{"call": f"call_{self._ids()}", "timeout_s": DEADLINE_S, **more})

    def run(self, *argv: str, sandbox: Sandbox | None = None, **more: Any) -> CompletedExec:
        """Run a program to its end and collect its output; in the shared sandbox by default."""
        return self.run_request(sandbox or self.sandbox, self.request(*argv, **more))

    def sh(self, line: str, sandbox: Sandbox | None = None, **more: Any) -> CompletedExec:
        """Run a shell line."""
        return self.run("sh", "-c", line, sandbox=sandbox, **more)

    def python(self, program: str, sandbox: Sandbox | None = None, *words: str, **more: Any) -> CompletedExec:
        """Run a Python program, isolated from the workspace's modules."""
        return self.run("python3", "-I", "-c", program, *words, sandbox=sandbox, **more)

    def stat_file(self, path: str, sandbox: Sandbox | None = None) -> tuple[int, int, int]:
        """Return permission bits, owner and size of a file as a tool sees them. `stat` fails under gVisor of 2022."""
        ran = self.python(
            "import os, sys; s = os.stat(sys.argv[1]); print(s.st_mode, s.st_uid, s.st_size)", sandbox, path
        )
        try:
            mode, owner, size = map(int, ran.stdout.split())
        except ValueError:
            raise ProbeFailed(f"{path} cannot be looked at: {ran.stdout[:100]!r} {ran.stderr[-200:]!r}") from None
        return mode & 0o7777, owner, size

    def run_request(
        self, sandbox: Sandbox, request: ExecRequest, first: Callable[[], None] = lambda: None
    ) -> CompletedExec:
        """Run a request and collect its output; calls `first` at each chunk of output.

        Raises:
            ProbeFailed: the output had a gap or an overlap.
        """
        output = {"stdout": bytearray(), "stderr": bytearray()}
        left_out = {"stdout": 0, "stderr": 0}

        def collect(chunk: Chunk) -> None:
            held = output[chunk.stream]
            missing = chunk.offset - len(held) - left_out[chunk.stream]
            if missing < 0 or (missing and left_out[chunk.stream]):
                raise ProbeFailed(f"{chunk.stream} went on at {chunk.offset}, where {len(held)} bytes had come")
            left_out[chunk.stream] += missing  # allowed once, for dropped output
            held.extend(chunk.data)
            first()

        started = time.monotonic()
        result = sandbox.exec(request, collect)
        for stream, count in (("stdout", result.stdout), ("stderr", result.stderr)):
            if left_out[stream] not in (0, count.dropped):
                raise ProbeFailed(
                    f"{left_out[stream]} bytes of {stream} are missing, and {count.dropped} are reported as dropped"
                )
        return CompletedExec(result, bytes(output["stdout"]), bytes(output["stderr"]), time.monotonic() - started)

    def start_exec(self, sandbox: Sandbox, request: ExecRequest) -> RunningExec:
        """Start an exec on a thread and wait for its first output."""
        return RunningExec(self, sandbox, request)

    def expect_usable(self, sandbox: Sandbox | None = None) -> None:
        """Raise `ProbeFailed` unless the sandbox still runs execs."""
        ran = expect_exit(self.run("echo", "well", sandbox=sandbox))
        expect_equal("an exec afterwards", ran.stdout, b"well\n")

    def marker(self) -> str:
        """Return a number of seconds that no other process sleeps, so that `sleep MARKER` can be found."""
        return f"3{next(self._calls):05d}"

    def is_running(self, marker: str, sandbox: Sandbox | None = None) -> bool:
        """Return whether a process with this word in its arguments runs in the sandbox."""
        ran = self.python(_SEARCH, sandbox, env={"CODESDK_MARKER": marker})
        if ran.stdout not in (b"lives\n", b"gone\n"):
            raise ProbeFailed(f"the search for processes answered {ran.stdout[:200]!r} {ran.stderr[:200]!r}")
        return ran.stdout == b"lives\n"

    def close(self) -> None:
        """Remove the shared sandbox."""
        self.renew()


class RunningExec:
    """An exec that runs on a thread."""

    def __init__(self, context: ProbeContext, sandbox: Sandbox, request: ExecRequest) -> None:
        self.request = request
        self._sandbox = sandbox
        self._ran: CompletedExec | None = None
        self._error: Exception | None = None
        begun = threading.Event()

        def work() -> None:
            try:
                self._ran = context.run_request(sandbox, request, begun.set)
            except Exception as error:  # noqa: BLE001 - handed to the thread that waits
                self._error = error
            begun.set()

        self._thread = threading.Thread(target=work, name=f"probe-{request.call}", daemon=True)
        self._thread.start()
        begun.wait(DEADLINE_S)

    @property
    def alive(self) -> bool:
        """Whether the exec is still running."""
        return self._thread.is_alive()

    def cancel(self) -> bool:
        """Cancel the exec."""
        return self._sandbox.cancel(self.request.call, self.request.attempt)

    def end(self) -> CompletedExec:
        """Wait for the exec to end and return it."""
        self._thread.join(2 * DEADLINE_S)
        if self._error is not None:
            raise self._error
        if self._ran is None:
            raise ProbeFailed(f"an exec of {self.request.argv[0]} did not end within {2 * DEADLINE_S:g} s")
        return self._ran


_SEARCH = """
import os
wanted = os.environ["CODESDK_MARKER"].encode()
found = False
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file: words = file.read()
            with open(f"/proc/{name}/stat", "rb") as file: state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            continue
        found = found or (wanted in words and state not in (b"Z", b"X"))
print("lives" if found else "gone")
"""
