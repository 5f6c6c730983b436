"""Selects the tests of `make test` and `make test-all`, and distributes them over worker processes.

Everything runs once in CI. A test is `full`, left to `make test-all`, if its folder or module is named in FULL, if one
of its parameters is, or if it has the marker itself. CONTRIBUTING.md has the table for people.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FULL: tuple[str, ...] = (
    # real agents and clients
    "tests/acceptance/",
    "tests/integration/api/test_bridge.py",
    "tests/integration/api/test_conformance.py",
    "tests/integration/api/test_bridge_both_ways.py",
    "tests/integration/api/test_connect_for_real.py",
    "tests/integration/api/test_logins_for_real.py",
    "tests/integration/api/test_real_clients.py",
    # whole installations
    "tests/integration/api/test_server.py",
    "tests/integration/cli/",
    "tests/integration/compose/",
    "tests/integration/hosts/",
    # what dies, and what is heavy
    "tests/integration/api/test_load.py",
    "tests/integration/artifacts/test_collection_races.py",
    "tests/integration/eventlog/test_processes.py",
    "tests/integration/outages/",
    "tests/integration/storage/test_server_timeouts.py",
    "tests/integration/webhooks/test_killed.py",
    "tests/integration/worker/",
    "tests/soak/test_chaos.py",
    "tests/soak/test_soak.py",
    # other engines, images, what is installed
    "tests/integration/provision/",
    "tests/integration/sandbox/images/",
    "tests/integration/sandbox/test_create_faults.py",
    "tests/integration/sandbox/test_engine_restart.py",
    "tests/integration/sandbox/test_large_files.py",
    "tests/integration/sandbox/test_pythons.py",
    "tests/integration/sandbox/test_remote_engine.py",
    "tests/integration/sandbox/test_stills.py",
    "tests/integration/sources/test_commands.py",
    "tests/integration/storage/test_postgres.py",
    "tests/security/policy/test_real_bash.py",
    "tests/security/sandbox/images/",
    "tests/security/selfcheck/test_probes_can_fail.py",
    "tests/security/selfcheck/test_projects.py",
    "tests/security/selfcheck/test_runsc.py",
    "tests/security/selfcheck/test_spoiled.py",
    "tests/security/selfcheck/test_weakened.py",
    "tests/unit/provision/test_packages.py",
    "tests/unit/scripts/test_ci.py",
)
"""Folders and modules."""

POSTGRESQL: tuple[str, ...] = (
    "tests/integration/artifacts/",
    "tests/integration/eventlog/",
    "tests/integration/storage/",
    "tests/unit/approvals/test_votes.py",
    "tests/unit/artifacts/",
    "tests/unit/eventlog/",
    "tests/unit/hosts/",
    "tests/unit/storage/",
    "tests/unit/toolcalls/test_claim.py",
    "tests/unit/toolcalls/test_pipeline.py",
    "tests/unit/toolcalls/test_repeated_calls.py",
    "tests/unit/webhooks/test_fanout.py",
    "tests/unit/worker/test_lost_calls.py",
)
"""Whose tests `make test` runs on PostgreSQL too: what holds SQL, and the flow of a call. Others do so in the rest."""

FULL_PARAMETERS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("tests/contract/test_blobs.py", "blobs", frozenset({"s3"})),
    ("tests/contract/test_sandboxes.py", "world", frozenset({"runsc", "plain"})),
    ("tests/integration/sandbox/local/", "sandboxes", frozenset({"plain", "uncapped"})),
    ("tests/security/sandbox/local/", "sandboxes", frozenset({"plain", "uncapped"})),
)
"""Below a folder or in a module: the name of a parameter, and the values of it that `make test` leaves out."""

EACH_BY_PARAMETER: tuple[str, ...] = (
    "tests/contract/test_sandboxes.py",
    "tests/integration/sandbox/local/",
    "tests/security/sandbox/local/",
)
"""Where tests are spread by their first parameter, for which the module makes its fixtures."""

TOGETHER: tuple[tuple[str, str], ...] = (
    # These start engines of their own, restart them, and look at what their shims leave on this machine.
    ("tests/integration/compose/", "engines"),
    ("tests/integration/hosts/test_two_engines.py", "engines"),
    ("tests/integration/provision/", "engines"),
    ("tests/integration/sandbox/test_engine_restart.py", "engines"),
    ("tests/integration/sandbox/test_remote_engine.py", "engines"),
    ("tests/integration/worker/test_lost_for_real.py", "engines"),
    ("tests/soak/", "engines"),
    # One installation and one model server for all.
    ("tests/acceptance/", "agents"),
)
"""Below a folder or in a module: the group of tests that share something of this machine, so that one worker runs them all."""

LAST: tuple[str, ...] = ("tests/security/", "tests/contract/", "tests/unit/", "tests/architecture/")
"""What takes its turn after all else, in this order."""


def is_full(path: str, parameters: Mapping[str, Any]) -> bool:
    """Whether `make test` leaves out a test of the module at `path`, a path in the repository, with those parameters."""
    if path.startswith(FULL):
        return True
    if parameters.get("database_kind") == "postgresql" and not path.startswith(POSTGRESQL):
        return True
    return any(
        path.startswith(place) and isinstance(parameters.get(name), str) and parameters[name] in values
        for place, name, values in FULL_PARAMETERS
    )


def group_of(nodeid: str) -> str:
    """The tests that one worker runs together, in their order: a module's, for the sake of the module's fixtures."""
    path = nodeid.partition("::")[0]
    for place, name in TOGETHER:
        if path.startswith(place):
            return name
    if path.startswith(EACH_BY_PARAMETER) and (first := re.search(r"\[([^-\]]+)", nodeid)):
        return f"{path}[{first[1]}]"
    return path


def turn_of(nodeid: str) -> int:
    """What comes first, for two workers to end at about the same time: whatever takes long in few tests."""
    return next((turn for turn, place in enumerate(LAST, 1) if nodeid.startswith(place)), 0)
