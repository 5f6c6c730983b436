"""Rules of the whole repository that no single module can check."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import codesdk
from codesdk.domain.events import EventType
from codesdk.errors import ExitCode, Fault
from codesdk.registry import Registry, Template
from codesdk.tools import BUILTINS
from stage import REPOSITORY

PACKAGE = REPOSITORY / "platform" / "codesdk"
MODULES = sorted(PACKAGE.rglob("*.py"))
MOST_LINES = 600

# Contract 000 has these; what we add stands under our own prefixes.
CONTRACT = [
    "session.created",
    "task.started",
    "model.input",
    "runtime.request.started",
    "runtime.request.completed",
    "model.output.delta",
    "model.output.completed",
    "tool.call.requested",
    "tool.call.policy_evaluated",
    "tool.call.approved",
    "tool.call.denied",
    "tool.call.started",
    "tool.output.delta",
    "tool.output.completed",
    "tool.call.completed",
    "usage.reported",
    "task.completed",
    "task.failed",
    "task.stopped",
]
PREFIXES = ("approval.", "sandbox.", "failover.", "extension.")

CLOCK_OWNERS = {
    "domain/clock.py": "it is the clock",
    "sandbox": "deadlines of the engine's and the runner's edge, which run without the rest of the product",
    "provision": "starts programs and waits for them, before there is any service",
    "cli": "the process that a person looks at",
    "client/sync/concurrency.py": "pauses between two attempts, in the application's own process",
    "worker/calls/listener.py": "spaces out the heartbeats of RQ's loop, which keeps its own time",
}
ENVIRONMENT_OWNERS = {
    "settings": "the owner",
    "sandbox/runner": "a program of its own inside the container: the image's ENV is handed to execs",
    "provision": "looks for programs and engines, before there are settings",
    "cli": "hands its environment on to the processes that it starts",
    "client": "runs in the application's own process, which names its API there, and starts git",
    "worker/__main__.py": "a process's entrance: DOCKER_HOST is Docker's variable",
    "tools/fetch_program.py": "a program of its own inside the sandbox: the runner names its proxy there",
}
CLOCK_CALLS = {
    ("time", name)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep")
} | {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
ENVIRONMENT_CALLS = {("os", "environ"), ("os", "getenv"), ("os", "environb")}


def owned(path: Path, owners: dict[str, str]) -> bool:
    inside = path.relative_to(PACKAGE).as_posix()
    return any(inside == owner or inside.startswith(owner + "/") for owner in owners)


def attributes(path: Path) -> Iterator[tuple[int, tuple[str, str]]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield node.lineno, (node.value.id, node.attr)
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node.lineno, (node.module, alias.name)


def uses(banned: set[tuple[str, str]], owners: dict[str, str]) -> list[str]:
    return [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in MODULES
        if not owned(path, owners)
        for line, name in attributes(path)
        if name in banned
    ]


def test_the_platform_folder_is_no_package():
    # `import platform` must stay the standard library's.
    assert not (REPOSITORY / "platform" / "__init__.py").exists()
    assert "codesdk" not in (importlib.import_module("platform").__file__ or "")


def test_every_package_has_an_init():
    assert [
        p
        for p in {path.parent for path in MODULES}
        if not (p / "__init__.py").exists() and "versions" not in p.parts and p.name != "migrations"
    ] == []


def test_layers_and_owners_hold():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_modules_are_short_enough_to_read():
    lengths = {path.relative_to(PACKAGE).as_posix(): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in lengths.items() if lines >= MOST_LINES} == {}


def test_only_its_owners_read_the_clock():
    assert uses(CLOCK_CALLS, CLOCK_OWNERS) == []


def test_only_its_owners_read_the_environment():
    assert uses(ENVIRONMENT_CALLS, ENVIRONMENT_OWNERS) == []


def test_importing_starts_nothing():
    # No thread, no signal handler, no change of logging, no client of an engine or a Redis.
    watch = (
        "import logging,signal,sys,threading\n"
        "before=signal.getsignal(signal.SIGTERM)\n"
        "import codesdk.bootstrap,codesdk.worker.lifecycle.worker,codesdk.worker.calls.listener\n"
        "assert threading.active_count()==1, threading.enumerate()\n"
        "assert not logging.getLogger().handlers\n"
        "assert signal.getsignal(signal.SIGTERM) is before\n"
    )
    subprocess.run([sys.executable, "-c", watch], check=True, timeout=60)


def faults() -> list[type[Fault]]:
    for module in pkgutil.walk_packages(codesdk.__path__, "codesdk."):
        if not module.name.endswith("__main__") and ".migrations" not in module.name and ".runner" not in module.name:
            importlib.import_module(module.name)
    found, todo = [], [Fault]
    while todo:
        for subclass in todo.pop().__subclasses__():
            if subclass.__module__.startswith("codesdk."):
                found.append(subclass)
            todo.append(subclass)
    return found


def test_every_fault_has_a_code_of_its_own():
    own = [fault for fault in set(faults()) if "code" in vars(fault)]
    counted = Counter(fault.code for fault in own)
    assert {code: times for code, times in counted.items() if times > 1} == {}
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", code) for code in counted)


def test_every_fault_says_what_went_wrong_in_its_docstring_and_has_a_code():
    for fault in set(faults()):
        assert fault.__doc__, fault
        assert fault.code != "INTERNAL" or fault.__module__ == "codesdk.errors.fault", fault
        assert 400 <= fault.status < 600, fault
        assert isinstance(fault.exit_code, ExitCode), fault


def test_the_contracts_events_are_all_there_and_ours_stand_under_our_prefixes():
    ours = {event.value for event in EventType} - set(CONTRACT)
    assert set(CONTRACT) <= {event.value for event in EventType}
    assert [name for name in ours if not name.startswith(PREFIXES)] == []


def test_every_event_type_fits_its_column():
    assert max(len(event.value) for event in EventType) <= 48


def test_every_builtin_has_a_manifest_and_every_manifest_something_behind_it():
    tools = Registry.load(REPOSITORY / "tool-registry").tools()
    named = {tool.runs.builtin for tool in tools if not isinstance(tool.runs, Template)}
    assert named == set(BUILTINS)


def versioned() -> list[Path]:
    """Files that belong to the repository, new ones included."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("this is no checkout")
    return [path for name in listed.stdout.splitlines() if (path := REPOSITORY / name).is_file()]


def test_no_file_names_a_machine_or_a_package_host():
    # Written in pieces, so that this file is not the first to name them.
    hosts = [
        "py" + "pi.org",
        "pythonhosted" + ".org",
        "registry.npm" + "js.org",
        "crates" + ".io",
        "proxy.golang" + ".org",
    ]
    places = [r"/wo" + r"rk(?![a-z])", r"\.\./sha" + "red"]
    wrong = re.compile("|".join([*map(re.escape, hosts), *places]))
    found = []
    for path in versioned():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if match := wrong.search(line):
                found.append(f"{path.relative_to(REPOSITORY)}:{number}: {match[0]}")
    assert found == []


def test_the_reader_of_a_call_meets_no_helper_modules():
    names = {part for path in MODULES for part in path.relative_to(PACKAGE).with_suffix("").parts}
    assert not names & {"utils", "util", "helpers", "helper", "common", "misc", "manager", "managers", "base"}


def test_what_the_bench_marks_on_a_calls_way_is_there():
    at = REPOSITORY / "bench" / "traced" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("traced", at)
    assert spec is not None
    assert spec.loader is not None
    traced = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(traced)
    for module, marked in traced.MARKS.items():
        for called, _, _ in marked:
            owner, name = called.split(".")
            assert callable(getattr(getattr(importlib.import_module(module), owner), name)), (module, called)
