"""CodeSDK: the tool calls of AI agents, governed by policy, run in Docker sandboxes, recorded in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from codesdk.client import Client as Client
    from codesdk.client.embedded import embedded as embedded

_LAZY = {"Client": "codesdk.client", "embedded": "codesdk.client.embedded"}


def __getattr__(name: str) -> object:
    """What applications start with. Imported on first use, so that other parts don't load the client."""
    if name not in _LAZY:
        raise AttributeError(f"module 'codesdk' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 (see above)

    return getattr(import_module(_LAZY[name]), name)
