"""Determines from the engine's record why a container stopped or doesn't answer."""

from __future__ import annotations

from typing import Any

from codesdk.errors import Fault
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.port.faults import EngineRestarted, EngineUnavailable, ImageUnusable, SandboxGone

_KILL_EXIT_CODES = (137, 143)
"""128 + SIGKILL or SIGTERM: how an engine that shuts down ends its containers."""


def ended_fault(engine: Engine, owner: str, found: dict[str, Any] | None) -> SandboxGone:
    """Return the fault for a stopped container. `found`: its inspect data, None if it doesn't exist.

    Raises:
        EngineUnavailable: the engine doesn't answer.
    """
    if found is None:
        return SandboxGone(owner, "its container was removed")
    how = _describe_end(found)
    if found["State"].get("OOMKilled") or not engine.restarted_since(str(found["Id"])):
        return SandboxGone(owner, how)
    return EngineRestarted(owner, how)


def failed_start_fault(engine: Engine, image: str, found: dict[str, Any] | None, output: str) -> Fault:
    """Return the fault for a runner that doesn't answer after its start: the image's, unless the engine ended it.

    Raises:
        EngineUnavailable: the engine doesn't answer, which is the reason.
    """
    if found is None or _was_killed(found) or engine.restarted_since(str(found["Id"])):
        return EngineUnavailable(engine.endpoint, "a container ended while it was started")
    return ImageUnusable(image, output)


def _was_killed(found: dict[str, Any]) -> bool:
    state = found["State"]
    return not state.get("Running") and state.get("ExitCode") in _KILL_EXIT_CODES and not state.get("OOMKilled")


def _describe_end(found: dict[str, Any]) -> str:
    state = found["State"]
    if state.get("OOMKilled"):
        return f"its memory was exhausted and the kernel ended the runner (exit code {state.get('ExitCode')})"
    detail = f": {state['Error']}" if state.get("Error") else ""
    return f"its container is {state['Status']} (exit code {state.get('ExitCode')}){detail}"
