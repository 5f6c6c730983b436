"""The nine calls of the demo's agent, with their expected results."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
import tarfile
from pathlib import Path
from typing import Any

from codesdk.cli.demo.project import DemoProject
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault
from codesdk.sandbox.local.bwrap import SYSTEM_PATH
from codesdk.sandbox.local.launch import is_world_executable
from codesdk.sandbox.port import DOCKER

TESTS = "PYTHONDONTWRITEBYTECODE=1 python3 -m pytest -q -p no:cacheprovider"
"""Matches the policy's rule `run-tests` and leaves no caches in the workspace."""
FORBIDDEN = "rm -rf tests"
ASKED = "chmod +x sqlparse/__main__.py && ls -l sqlparse/__main__.py"
PROBE = """python3 -c 'import socket; socket.create_connection(("192.0.2.1", 443), timeout=3)'"""
"""An address reserved for documentation (RFC 5737), where nothing answers on any network. The error is what matters:
without a network the kernel has no route and fails at once.
"""
NO_ROUTE = "Network is unreachable"
SHOWN_MIN_S = 300.0
SEARCH, NETWORK = "Search the source", "Try to reach the network"
FAILING, PASSING = "Run it: it fails", "Run the project's own tests"


class DemoFailed(Fault):
    """A step did not end as expected, or the record does not match."""

    code = "DEMO_FAILED"
    exit_code = ExitCode.FAILED


class Step(FrozenModel):
    """One call and its expected end."""

    title: str
    tool: str
    """Dotted name."""
    input: dict[str, Any]
    effect: str
    """Expected policy decision: allow, ask or deny."""
    end: str
    """The state that the call must end in, as `history.Call.state`."""
    contains: str = ""
    """Text that the result must contain."""
    show: str = ""
    """The first line of the result with this text is shown; empty: the first line."""
    note: str = ""
    """Comment for the reader."""


def unavailable_steps(facts: dict[str, Any]) -> dict[str, str]:
    """Titles of the steps that this sandbox can't run, with the reason."""
    if facts.get("environment", DOCKER) == DOCKER:
        return {}
    missing = {}
    if list(facts.get("network_interfaces", [])) != ["lo"]:
        missing[NETWORK] = "nothing keeps tools from this machine's network"
        python = Path(sys.executable).resolve()
        if facts.get("tool_uid") != os.getuid() and not is_world_executable(python):
            # Without isolation tools run with the machine's Python, which may have no pytest.
            missing[FAILING] = missing[PASSING] = f"{python}, which has pytest, is closed to the tools' user"
    if shutil.which("rg", path=SYSTEM_PATH) is None:
        missing[SEARCH] = "this machine has no ripgrep (`apt-get install ripgrep`)"
    return missing


def steps(project: DemoProject, source: str) -> tuple[Step, ...]:
    """The calls in order. `source`: content of the file that is edited."""
    edit = project.edit
    line = next(n for n, text in enumerate(source.splitlines(), 1) if edit.before in text)
    tests = f"{TESTS} {project.test_path}"
    return (
        Step(
            title="Read a file",
            tool="workspace.read",
            input={"path": edit.path, "offset": line - 1, "limit": 3},
            effect="allow",
            end="completed",
            contains=edit.before,
            show=edit.before,
        ),
        Step(
            title=SEARCH,
            tool="workspace.search",
            input={"pattern": r"\bJOIN\b", "glob": "*.py"},
            effect="allow",
            end="completed",
            contains=edit.path,
            show=edit.path,
        ),
        Step(
            title="Write a test that shows a defect",
            tool="workspace.write",
            input={"path": project.test_path, "content": project.test_source},
            effect="allow",
            end="completed",
        ),
        Step(
            title=FAILING,
            tool="workspace.exec",
            input={"command": tests},
            effect="allow",
            end="failed",
            contains="1 failed",
            show="1 failed",
        ),
        Step(
            title="Fix the defect",
            tool="patch.apply",
            input={"patch": patch(edit.path, source, source.replace(edit.before, edit.after))},
            effect="allow",
            end="completed",
        ),
        Step(
            title=PASSING,
            tool="workspace.exec",
            input={"command": TESTS, "timeout_s": SHOWN_MIN_S},
            effect="allow",
            end="completed",
            contains=f"{project.tests + 1} passed",
            show="passed",
        ),
        Step(
            title="Run a command that policy denies",
            tool="workspace.exec",
            input={"command": FORBIDDEN},
            effect="deny",
            end="denied",
            contains="DENIED_BY_POLICY",
            note="the call never reached the sandbox",
        ),
        Step(
            title="Run a command that a person must approve",
            tool="workspace.exec",
            input={"command": ASKED},
            effect="ask",
            end="completed",
            contains="-rwx",
            note="the call waited until a person approved it over HTTP",
        ),
        Step(
            title=NETWORK,
            tool="workspace.exec",
            input={"command": PROBE},
            effect="ask",
            end="failed",
            contains=NO_ROUTE,
            show=NO_ROUTE,
            note="approved too, but the sandbox has no network",
        ),
    )


def patch(path: str, before: str, after: str) -> str:
    """Return a unified diff."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))


def read_source(archive: Path, project: DemoProject) -> str:
    """Return the content of the file that the demo edits."""
    with tarfile.open(archive) as packed:
        member = packed.extractfile(f"{project.root}/{project.edit.path}")
        if member is None:
            raise FileNotFoundError(project.edit.path)
        return member.read().decode()
