"""Checks an image's configuration, from the engine's inspect data. Pure."""

from __future__ import annotations

import re
from typing import Any

LABEL_NAME = "codesdk.image.name"
LABEL_CONTENT = "codesdk.image.content"
_INHERITABLE_LABELS = frozenset({LABEL_NAME, LABEL_CONTENT, "codesdk.base"})
"""Labels of ours that every image built on one of our images inherits. Nothing is found by them alone: an image of ours
is found by its tag, and a container by labels that an image must not have."""
_FORBIDDEN_ENV = re.compile(r"(LD_|PYTHON(?!_)|GLIBC_TUNABLES|GCONV_PATH|BASH_ENV$|ENV$)")
"""Variables that a loader or interpreter obeys: the runner, root's, starts with the image's ENV. PYTHON_VERSION and its
like, which python:* images set, are read by nobody."""

_MAX_NAMES = 8


def refusals(inspected: dict[str, Any], architecture: str = "") -> tuple[str, ...]:
    """Why an image cannot be a sandbox; empty where it can.

    Entrypoint, command, user, working directory, health check and stop signal are no reasons: a sandbox has its own.

    Args:
        inspected: the engine's description of the image.
        architecture: the engine's; empty where it shall not be compared.
    """
    config = inspected.get("Config") or {}
    reasons = []
    if config.get("Volumes"):
        # They stay writable under a read-only root, and leave anonymous volumes behind.
        reasons.append(f"it declares volumes ({_names(config['Volumes'])})")
    variables = [entry.partition("=")[0] for entry in config.get("Env") or ()]
    forbidden = [name for name in variables if _FORBIDDEN_ENV.match(name)]
    if forbidden:
        reasons.append(f"it sets {_names(forbidden)}, which would act on the runner")
    forged = [label for label in config.get("Labels") or {} if _is_reserved(label)]
    if forged:
        reasons.append(f"it carries labels that say whose a sandbox is ({_names(forged)})")
    if inspected.get("Os", "linux") != "linux":
        reasons.append(f"it is for {inspected['Os']}, not for Linux")
    elif architecture and inspected.get("Architecture", architecture) != architecture:
        reasons.append(f"it is for {inspected['Architecture']}, the engine's machine is {architecture}")
    return tuple(reasons)


def _is_reserved(label: str) -> bool:
    return label.startswith("codesdk.") and label not in _INHERITABLE_LABELS


def _names(found: Any) -> str:
    """Truncate text from an untrusted image."""
    names = sorted(str(name)[:80] for name in found)
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more
