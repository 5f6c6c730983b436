"""The open sandboxes of a driver: waiters, races, and what is kept."""

from __future__ import annotations

import threading

import pytest

from codesdk.errors import Fault
from codesdk.sandbox.channel import open_sandboxes
from codesdk.sandbox.channel.open_sandboxes import OpenSandboxes
from codesdk.sandbox.channel.sandbox import RunnerSandbox
from codesdk.sandbox.port import SandboxMissing, SandboxSpec
from codesdk.sandbox.port.faults import SandboxGone
from codesdk.sandbox.profiles.profile import Profile

DEADLINE_S = 45.0


def spec(owner: str) -> SandboxSpec:
    return SandboxSpec(owner=owner, instance="t", profile=Profile(), image="sha256:x", tool_uid=200_001, generation=1)


def sandbox(asked: SandboxSpec) -> RunnerSandbox:
    return RunnerSandbox(asked, lambda: pytest.fail("nothing connects here"), lambda: None)


class Undeletable(Fault):
    code = "ENGINE_REFUSED"


@pytest.fixture
def removed():
    return []


def test_an_open_that_fails_and_cannot_be_cleaned_up_holds_nobody_up(removed):
    def remove(owner):
        removed.append(owner)
        if len(removed) == 1:
            raise OSError("the disk is away")

    found = OpenSandboxes(remove)

    def fails(_spec):
        raise ValueError("a defect")

    with pytest.raises(OSError, match="away"):
        found.open(spec("a"), fails)
    opened = []
    next_one = threading.Thread(target=lambda: opened.append(found.open(spec("a"), sandbox)), daemon=True)
    next_one.start()
    next_one.join(DEADLINE_S)
    assert opened


def test_a_sandbox_that_cannot_be_removed_keeps_no_other_from_being_swept(removed):
    def remove(owner):
        if owner == "a":
            raise Undeletable("the engine refused")
        removed.append(owner)

    assert OpenSandboxes(remove).sweep(["c", "a", "b"]) == {"b", "c"}
    assert removed == ["b", "c"]


def test_a_sandbox_that_was_destroyed_while_it_was_taken_up_again_is_gone(removed):
    found = OpenSandboxes(removed.append)
    taken = sandbox(spec("a"))
    found.destroy("a")
    assert isinstance(found.register(taken), SandboxMissing)
    with pytest.raises(SandboxGone, match="destroyed"):
        taken.files.stat("x")
    kept = sandbox(spec("b"))
    assert found.register(kept) is kept


def test_destroyed_owners_are_remembered_and_not_without_end(removed, monkeypatch):
    monkeypatch.setattr(open_sandboxes, "REMEMBERED", 3)
    found = OpenSandboxes(removed.append)
    inside, go_on, outcome = threading.Event(), threading.Event(), []

    def slow(asked):
        inside.set()
        assert go_on.wait(DEADLINE_S)
        return sandbox(asked)

    def opens():
        with pytest.raises(SandboxGone) as gone:
            found.open(spec("first"), slow)
        outcome.append(gone.value)

    opener = threading.Thread(target=opens, daemon=True)
    opener.start()
    assert inside.wait(DEADLINE_S)
    for owner in ("first", *map(str, range(20))):
        found.destroy(owner)
    assert len(found._destroyed) <= 3 + 1  # what is being opened is never forgotten
    go_on.set()
    opener.join(DEADLINE_S)
    assert outcome
    with pytest.raises(SandboxGone):
        found.open(spec("19"), sandbox)
