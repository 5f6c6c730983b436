"""Probes that a runtime cannot show, by name and with the reason. Whatever is not here must pass."""

from __future__ import annotations

EXEMPT: dict[str, dict[str, str]] = {"runsc": {}}


def exemption(runtime: str, probe: str) -> str:
    """Why the probe is not run on this runtime; empty where it is."""
    return EXEMPT.get(runtime, {}).get(probe, "")
