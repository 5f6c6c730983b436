"""An idle sandbox: one process of ours under its init, and its memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from codesdk.sandbox.isolation.spec import container_name
from codesdk.sandbox.packaging import bundle
from codesdk.sandbox.packaging.minify import minify
from codesdk.sandbox.runner.execution import execs
from sandboxes import DEADLINE_S, run

pytestmark = pytest.mark.engine

KEEP = "KEEP_FREE_S = 20.0"
IDLE_MB = 6.5
"""Of anonymous memory; 6.07 were measured, each time, with Debian's Python 3.11."""


@pytest.fixture
def hasty(monkeypatch, open_sandbox):
    """A sandbox that lets its helpers go after half a second."""
    monkeypatch.setattr(bundle, "minify", lambda source: minify(source).replace(KEEP, "KEEP_FREE_S = 0.5"))
    bundle.program.cache_clear()
    yield open_sandbox()
    bundle.program.cache_clear()


def processes(sandboxes, sandbox) -> list[str]:
    top = sandboxes._engine.api.top(container_name(sandboxes._instance, sandbox.owner))
    return [row[-1] for row in top["Processes"]]


def wait_idle(sandboxes, sandbox) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while len(found := processes(sandboxes, sandbox)) > 2:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def test_the_time_that_helpers_are_kept_is_what_the_test_shortens():
    assert KEEP in Path(execs.__file__).read_text("utf-8")


def test_an_idle_sandbox_is_init_and_runner_and_runs_the_next_exec_again_and_again(sandboxes, hasty):
    for _ in range(3):
        assert run(hasty, "echo", "here").stdout == b"here\n"
        wait_idle(sandboxes, hasty)


def test_output_that_is_not_acknowledged_outlives_the_idle_time(sandboxes, hasty):
    ran = run(hasty, "sh", "-c", "echo kept; exit 3")
    wait_idle(sandboxes, hasty)
    again = run(hasty, "sh", "-c", "echo kept; exit 3", call=ran.call)
    assert (again.result, again.stdout) == (ran.result, b"kept\n")


def megabytes(sandboxes, sandbox) -> float:
    said = sandboxes._engine.api.stats(container_name(sandboxes._instance, sandbox.owner), stream=False, one_shot=True)
    stats = said["memory_stats"]["stats"]
    # Anonymous memory alone: which sandbox the image's files are charged to depends on who read them first, and what a
    # cgroup "uses" has up to 64 pages in it, for each processor, that nothing uses (Linux, MEMCG_CHARGE_BATCH).
    return stats.get("total_rss", stats.get("anon")) / 1e6


def test_an_idle_sandbox_holds_at_most_six_and_a_half_megabytes(sandboxes, hasty):
    run(hasty, "true")
    wait_idle(sandboxes, hasty)
    # The kernel sums up what each processor counted some time after a process's end.
    deadline = time.monotonic() + DEADLINE_S
    while (held := megabytes(sandboxes, hasty)) >= IDLE_MB and time.monotonic() < deadline:
        time.sleep(0.2)
    assert held < IDLE_MB
