"""Checks an image's configuration, from the engine's inspect data. No I/O."""

from __future__ import annotations

import re
from typing import Any

LABEL_NAME = "codesdk.image.name"
LABEL_CONTENT = "codesdk.image.content"
LABEL_SOURCES = "codesdk.image.sources"
_INHERITABLE_LABELS = frozenset({LABEL_NAME, LABEL_CONTENT, LABEL_SOURCES, "codesdk.base"})
"""Our labels, which images built on ours inherit. They identify nothing by themselves: our images are found by tag, and
containers by labels that an image may not have."""
_FORBIDDEN_ENV = re.compile(r"(LD_|PYTHON(?!_)|GLIBC_TUNABLES|GCONV_PATH|BASH_ENV$|ENV$)")
"""Variables that loaders and interpreters obey. The runner starts as root with the image's ENV. PYTHON_VERSION and
other PYTHON_* variables of python:* images have no effect."""

_MAX_NAMES = 8


def refusals(inspected: dict[str, Any], architecture: str = "") -> tuple[str, ...]:
    """Return why an image can't be used for sandboxes; empty if it can.

    Entrypoint, command, user, working directory, health check and stop signal don't matter: sandboxes override them.

    Args:
        inspected: the engine's description of the image.
        architecture: the engine's; empty to skip the comparison.
    """
    config = inspected.get("Config") or {}
    reasons = []
    if config.get("Volumes"):
        # Volumes stay writable under a read-only root, and leave anonymous volumes behind.
        reasons.append(f"it declares volumes ({_names(config['Volumes'])})")
    variables = [entry.partition("=")[0] for entry in config.get("Env") or ()]
    forbidden = [name for name in variables if _FORBIDDEN_ENV.match(name)]
    if forbidden:
        reasons.append(f"it sets {_names(forbidden)}, which would act on the runner")
    forged = [label for label in config.get("Labels") or {} if _is_reserved(label)]
    if forged:
        reasons.append(f"it sets labels that are reserved for sandboxes ({_names(forged)})")
    if inspected.get("Os", "linux") != "linux":
        reasons.append(f"it is for {inspected['Os']}, not for Linux")
    elif architecture and inspected.get("Architecture", architecture) != architecture:
        reasons.append(f"it is for {inspected['Architecture']}, the engine's machine is {architecture}")
    return tuple(reasons)


def _is_reserved(label: str) -> bool:
    return label.startswith("codesdk.") and label not in _INHERITABLE_LABELS


def _names(found: Any) -> str:
    """Join and truncate names from an untrusted image."""
    names = sorted(str(name)[:80] for name in found)
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more
