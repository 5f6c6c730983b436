"""Checks in a locked-down container that an image has the Python that the runner needs."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

from docker.types import LogConfig

from codesdk.domain.model import FrozenModel
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.packaging import bundle
from codesdk.sandbox.packaging.minify import parse_module
from codesdk.sandbox.port.faults import EngineRefused, ImageUnusable

MIN_PYTHON = (3, 9)
"""Oldest Python supported by the runner."""
ANSWER_S = 20
"""Timeout in seconds for a start and one line of output; a busy machine takes 2 s."""
_POLL_S = 0.05
_PROGRAM = """\
import sys
missing = []
for name in sys.argv[1].split(","):
    try: __import__(name)
    except ImportError: missing.append(name)
import json
print(json.dumps({"version": list(sys.version_info[:3]), "missing": missing}))
"""
_NOT_FOUND = 127
_NOBODY = "65534:65534"


class Python(FrozenModel):
    """The image's Python."""

    version: tuple[int, int, int]
    missing: tuple[str, ...] = ()


def find_python(engine: Engine, image: str, holder: dict[str, Any]) -> Python:
    """Return the image's `python3`, if it can run the runner.

    The image reports this itself, so it is no security check: with a false report the runner just doesn't start.

    Args:
        engine: where the image is.
        image: its id.
        holder: name and labels of the probe's container.

    Raises:
        ImageUnusable: no python3, too old, modules missing, or no answer.
    """
    output, code = _run_container(engine, image, holder)
    try:
        found = Python.model_validate_json(output)
    except ValueError:
        why = "it has no python3" if code == _NOT_FOUND else f"its python3 gave no answer (exit code {code})"
        raise ImageUnusable(image, why) from None
    if found.version[:2] < MIN_PYTHON:
        raise ImageUnusable(image, f"its python3 is {'.'.join(map(str, found.version))}")
    if found.missing:
        raise ImageUnusable(image, f"its python3 lacks {', '.join(found.missing)[:200]}")
    return found


@cache
def required_modules() -> tuple[str, ...]:
    """Return the standard-library modules that the runner imports; minimal distribution packages lack some."""
    found: set[str] = set()
    for name in bundle.MODULES:
        for node in _unconditional_nodes(parse_module(bundle.source(name))):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module)
    return tuple(sorted(name for name in found if not name.startswith(("codesdk", "__future__"))))


def _unconditional_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those in a `try`, where the runner has a fallback."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Try):
            yield from _unconditional_nodes(child)


def _run_container(engine: Engine, image: str, holder: dict[str, Any]) -> tuple[bytes, int]:
    with engine.doing("create a container", image=image):
        container = engine.client.containers.create(
            image,
            entrypoint=["python3", "-I", "-S", "-c", _PROGRAM, ",".join(required_modules())],
            command=[],
            user=_NOBODY,
            working_dir="/",
            healthcheck={"test": ["NONE"]},
            stop_signal="SIGKILL",
            network_mode="none",
            read_only=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            pids_limit=64,
            mem_limit=256 * 1024 * 1024,
            memswap_limit=256 * 1024 * 1024,
            # Bounds the output of an untrusted image.
            log_config=LogConfig(type="json-file", config={"max-size": "64k", "max-file": "1"}),
            **holder,
        )
    try:
        return _wait_for_output(engine, container, image)
    except EngineRefused as refused:
        if "executable file not found" in refused.message:
            return b"", _NOT_FOUND
        if "exec format error" in refused.message:
            raise ImageUnusable(image, "its python3 is not built for this machine") from refused
        raise
    finally:
        with engine.doing("remove a container"):
            container.remove(force=True, v=True)


def _wait_for_output(engine: Engine, container: Any, image: str) -> tuple[bytes, int]:
    until = time.monotonic() + ANSWER_S
    with engine.doing("start a container"):
        container.start()
        while container.status != "exited":
            if time.monotonic() > until:
                raise ImageUnusable(image, f"its python3 gave no answer in {ANSWER_S} s")
            time.sleep(_POLL_S)
            container.reload()
        lines = container.logs(stdout=True, stderr=False, tail=1)
    return bytes(lines).strip(), int(container.attrs["State"]["ExitCode"])
