"""Shared parts of the sandbox tests: specs, a run that collects output, and the Docker driver of one test run."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.port import ExecRequest, ExecResult, Sandbox, SandboxSpec
from codesdk.sandbox.profiles.profile import Profile

DEADLINE_S = 60.0
# Uids of their own for each sandbox of a run: limits are counted per uid on the whole host.
_UIDS = itertools.count(210_000 + uuid.uuid4().int % 40_000)
_CALLS = itertools.count(1)


def spec(instance: str, image: str, *, owner: str = "", generation: int = 1, **profile: Any) -> SandboxSpec:
    return SandboxSpec(
        owner=owner or f"sbx_{uuid.uuid4().hex}",
        instance=instance,
        profile=Profile(**{"grace_s": 0.3, **profile}),
        image=image,
        tool_uid=next(_UIDS),
        generation=generation,
    )


@dataclass
class Ran:
    """A finished exec with its whole output."""

    result: ExecResult
    stdout: bytes
    stderr: bytes
    call: str


def request(*argv: str, call: str = "", **more: Any) -> ExecRequest:
    return ExecRequest(call=call or f"call_{next(_CALLS)}", argv=argv, **{"timeout_s": DEADLINE_S, **more})


def run(sandbox: Sandbox, *argv: str, **more: Any) -> Ran:
    asked = request(*argv, **more)
    output = {"stdout": bytearray(), "stderr": bytearray()}
    ends, gaps = {"stdout": 0, "stderr": 0}, {"stdout": 0, "stderr": 0}

    def collect(chunk: Any) -> None:
        gap = chunk.offset - ends[chunk.stream]
        assert gap >= 0
        gaps[chunk.stream] += gap
        ends[chunk.stream] = chunk.offset + len(chunk.data)
        output[chunk.stream] += chunk.data

    result = sandbox.exec(asked, collect)
    for name, count in (("stdout", result.stdout), ("stderr", result.stderr)):
        assert len(output[name]) == count.bytes - count.dropped
        assert gaps[name] in (0, count.dropped)
    return Ran(result, bytes(output["stdout"]), bytes(output["stderr"]), asked.call)


def python(sandbox: Sandbox, program: str, **more: Any) -> Ran:
    return run(sandbox, "python3", "-c", program, **more)


def alive(sandbox, marker: str) -> bool:
    """Whether a process with this in its command line lives; zombies have none."""
    program = f"""
import os
for pid in os.listdir("/proc"):
    if pid.isdigit() and int(pid) != os.getpid():
        try: line = open("/proc/" + pid + "/cmdline", "rb").read()
        except OSError: continue
        if {marker.encode()!r} in line and b"python3" not in line and b"-c" not in line: raise SystemExit(1)
"""
    return python(sandbox, program).result.exit_code == 1


@contextmanager
def docker_sandboxes(host: str, instance: str = "") -> Iterator[DockerSandboxes]:
    """Sandboxes of that installation, or of one of their own; nothing of it is left."""
    made = DockerSandboxes(instance or f"test-{uuid.uuid4().hex}", Engine(host))
    try:
        yield made
    finally:
        made.sweep(())
        made.close()
