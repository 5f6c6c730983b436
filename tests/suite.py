"""What `make test` runs, what `make test-all` adds to it, and how both are spread over worker processes.

Everything runs once in CI. A test is `full`, left to `make test-all`, where its folder or module is named in FULL, where
one of its parameters is, or where it carries the marker itself. CONTRIBUTING.md has the table for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FULL: tuple[str, ...] = (
    "tests/acceptance/",
    "tests/integration/compose/",
    "tests/integration/hosts/",
    "tests/integration/outages/",
    "tests/soak/",
)
"""Real agents, compose, several hosts, outages, chaos."""

FULL_PARAMETERS: tuple[tuple[str, str, frozenset[Any]], ...] = ()
"""Below a folder or in a module: a fixture's or a test's parameter, and the values of it that `make test` leaves out."""

EACH_BY_PARAMETER: tuple[str, ...] = ("tests/contract/test_sandboxes.py",)
"""Modules whose tests are spread by the first parameter, which their module's fixtures are made for."""

TOGETHER: tuple[tuple[str, str], ...] = ()
"""Below a folder or in a module: the group of tests that share something of this machine, so that one worker runs them all."""

LAST: tuple[str, ...] = ("tests/security/", "tests/contract/", "tests/unit/", "tests/architecture/")
"""What takes its turn after all else, in this order."""


def is_full(path: str, parameters: Mapping[str, Any]) -> bool:
    """Whether `make test` leaves out a test of the module at `path`, a path in the repository, with those parameters."""
    if path.startswith(FULL):
        return True
    return any(
        path.startswith(place) and parameters.get(name) in values
        for place, name, values in FULL_PARAMETERS
        if isinstance(parameters.get(name), str)
    )


def group_of(nodeid: str) -> str:
    """The tests that one worker runs together, in their order: a module's, for the sake of the module's fixtures."""
    path = nodeid.partition("::")[0]
    for place, name in TOGETHER:
        if path.startswith(place):
            return name
    if path in EACH_BY_PARAMETER and (first := re.search(r"\[([^-\]]+)", nodeid)):
        return f"{path}[{first[1]}]"
    return path


def turn_of(nodeid: str) -> int:
    """What comes first, for two workers to end at about the same time: whatever takes long in few tests."""
    return next((turn for turn, place in enumerate(LAST, 1) if nodeid.startswith(place)), 0)
