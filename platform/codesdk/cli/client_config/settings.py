"""Names that every generated configuration shares, and one value of a client's file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

SERVER_NAME = "codesdk"


@dataclass(frozen=True)
class Setting:
    """One value of a client's file."""

    path: tuple[str, ...]
    value: Any
    add: bool = False
    """Whether the value is a list of items that are added to the user's; otherwise it replaces the user's value."""


@dataclass(frozen=True)
class ConfigEntry:
    """What we write into one file of a client."""

    path: tuple[str, ...]
    """Path of keys to our entry."""
    entry: Any
    more: tuple[Setting, ...] = ()
    overrides: tuple[tuple[str, ...], ...] = ()
    """Paths at which the user's file could switch built-in tools on again; `*` is any key."""
