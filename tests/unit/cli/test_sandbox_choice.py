"""Containers, bubblewrap, or no isolation: always chosen explicitly."""

from __future__ import annotations

import pytest

from codesdk.cli.commands.options import SandboxKind
from codesdk.cli.sandboxes import backend_choice
from codesdk.cli.sandboxes.backend_choice import apply_sandbox_choice
from codesdk.provision.system import bubblewrap, debian
from codesdk.provision.system.command import ProvisionFailed
from codesdk.sandbox.local.confinement import Confinement, Isolation
from codesdk.sandbox.local.driver import open_local
from codesdk.sandbox.local.faults import LocalNotSeparated, LocalSandboxOff
from codesdk.settings import Settings

NO_WALL = Confinement(isolation=Isolation.NONE, apart=True, why_not="bubblewrap does not work here: no")
WALLED = Confinement(isolation=Isolation.BUBBLEWRAP, apart=True, program="/usr/bin/bwrap")


@pytest.fixture
def machine(monkeypatch):
    """A machine on which bubblewrap is there and does not work, or is not there and cannot be had."""

    def be(*, installed: bool, works: bool = False) -> None:
        monkeypatch.setattr(bubblewrap.shutil, "which", lambda _: "/usr/bin/bwrap" if installed else None)
        monkeypatch.setattr(bubblewrap, "detect_confinement", lambda: WALLED if works else NO_WALL)
        monkeypatch.setattr(debian, "root", lambda: None)

    monkeypatch.setattr(backend_choice, "detect_confinement", lambda program: NO_WALL if program == "" else None)
    return be


def chosen(setting: str, kind: SandboxKind | None) -> str:
    return apply_sandbox_choice(Settings(local_sandbox=setting), kind, lambda _: None).local_sandbox


def test_without_a_word_there_are_containers(machine):
    machine(installed=True, works=True)
    assert chosen("", None) == ""
    assert chosen("off", None) == "off"
    assert chosen("on", SandboxKind.DOCKER) == chosen("plain", SandboxKind.DOCKER) == ""


def test_local_is_behind_bubblewrap(machine):
    machine(installed=True, works=True)
    assert chosen("", SandboxKind.LOCAL) == chosen("on", None) == chosen("plain", SandboxKind.LOCAL) == "on"


@pytest.mark.parametrize("setting", ["", "on"])
def test_where_bubblewrap_does_not_work_local_is_refused_and_never_becomes_plain(machine, setting):
    machine(installed=True)
    with pytest.raises(LocalNotSeparated, match="--sandbox plain"):
        chosen(setting, SandboxKind.LOCAL)


def test_where_bubblewrap_cannot_be_installed_local_is_refused_with_both_ways_on(machine):
    machine(installed=False)
    with pytest.raises(ProvisionFailed) as caught:
        chosen("", SandboxKind.LOCAL)
    assert "bubblewrap" in str(caught.value)
    assert "--sandbox plain" in caught.value.advice()


def test_plain_is_chosen_by_its_own_word_and_said_loudly(machine):
    machine(installed=False)
    said: list[str] = []
    assert apply_sandbox_choice(Settings(), SandboxKind.PLAIN, said.append).local_sandbox == "plain"
    assert any("NO ISOLATION" in line for line in said)
    assert chosen("plain", None) == "plain"


def test_what_the_operator_has_ruled_out_no_command_can_choose(machine):
    machine(installed=True, works=True)
    for kind in (SandboxKind.LOCAL, SandboxKind.PLAIN):
        with pytest.raises(LocalSandboxOff):
            chosen("off", kind)


def test_a_worker_does_not_fall_back_either(tmp_path):
    with pytest.raises(LocalNotSeparated):
        open_local(Settings(data_dir=tmp_path, local_sandbox="on"), NO_WALL)
