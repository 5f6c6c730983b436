"""Compares gVisor and runc in one run and on one engine: time to a new sandbox's first result, and the cost of an exec.

Keys: `runsc_first_result_ms`, `runc_first_result_ms`, `runsc_exec_ms`, `runc_exec_ms` as {p50, p95, n}. If gVisor is
not available, only `gvisor_absent` with the reason.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import lifecycle
from codesdk.errors import Fault
from codesdk.provision.engines.docker_engine import Engine as ProvisionedEngine
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.port import ExecRequest, Sandbox, SandboxSpec
from codesdk.sandbox.profiles.profile import Profile
from from_tests import gvisor

RUNTIMES = ("runsc", "runc")
MEASURED = ("first_result", "exec")
OPENED = 10
EXECS = 60
FIRST_UID = 268_000
"""Above those of `lifecycle`."""


def measure(host: str, image: str, say: Callable[[str], None]) -> dict[str, Any]:
    """The report's keys. Host and image: where the sandbox image is."""
    with ExitStack() as opened:
        say("gVisor and runc")
        try:
            engine = gvisor.ensure(say)
            opened.callback(engine.stop)
            gvisor.copy_image(image, ProvisionedEngine(host), engine, say)
        except Fault as fault:
            return {"gvisor_absent": str(fault)}
        pair = Pair(engine.host, image, opened)
        first: dict[str, list[float]] = {runtime: [] for runtime in RUNTIMES}
        execs: dict[str, list[float]] = {runtime: [] for runtime in RUNTIMES}
        for _ in range(OPENED):
            for runtime in RUNTIMES:
                first[runtime].append(pair.first_result_ms(runtime))
        kept = {runtime: pair.open(runtime) for runtime in RUNTIMES}
        for _ in range(EXECS):
            for runtime in RUNTIMES:
                execs[runtime].append(pair.exec_ms(kept[runtime]))
        return {
            **{f"{runtime}_first_result_ms": lifecycle.spread(first[runtime]) for runtime in RUNTIMES},
            **{f"{runtime}_exec_ms": lifecycle.spread(execs[runtime]) for runtime in RUNTIMES},
        }


class Pair:
    """Sandboxes of either runtime, on the one engine that has both."""

    def __init__(self, host: str, image: str, opened: ExitStack) -> None:
        self._image = image
        self._instance = f"bench-gvisor-{os.getpid()}"
        self._sandboxes = DockerSandboxes(self._instance, Engine(host))
        self._number = 0
        opened.callback(self._sandboxes.close)
        opened.callback(self._sandboxes.sweep, ())

    def open(self, runtime: str) -> Sandbox:
        """A new one, attested and ready."""
        self._number += 1
        return self._sandboxes.open(
            SandboxSpec(
                owner=f"gvisor-{os.getpid()}-{self._number}",
                instance=self._instance,
                profile=Profile(runtime=runtime),
                image=self._image,
                tool_uid=FIRST_UID + self._number,
                generation=1,
            )
        )

    def first_result_ms(self, runtime: str) -> float:
        """From asking for a sandbox to the result of `true` in it, without a warm pool."""
        began = time.perf_counter()
        made = self.open(runtime)
        self.exec_ms(made)
        took = (time.perf_counter() - began) * 1000
        self._sandboxes.destroy(made.owner)
        return took

    def exec_ms(self, sandbox: Sandbox) -> float:
        """`true`, and its acknowledgement."""
        self._number += 1
        call = f"call-{self._number}"
        began = time.perf_counter()
        result = sandbox.exec(ExecRequest(call=call, argv=("true",)), lambda _chunk: None)
        sandbox.acknowledge(call, 1)
        took = (time.perf_counter() - began) * 1000
        assert result.exit_code == 0, result
        return took
