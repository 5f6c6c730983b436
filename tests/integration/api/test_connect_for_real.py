"""`codesdk connect` with the clients' own programs: what it writes they read, and what it says that they see they see."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from acceptance.agents import claude, codex, gemini, opencode, qwen
from acceptance.agents.install import INSTALL_LIMIT_S
from acceptance.conftest import program_or_skip
from codesdk.cli.app import app

pytestmark = [pytest.mark.node, pytest.mark.timeout(INSTALL_LIMIT_S + 180)]

PACKAGES = {
    "claude": claude.PACKAGE,
    "codex": codex.PACKAGE,
    "gemini": gemini.PACKAGE,
    "opencode": opencode.PACKAGE,
    "qwen": qwen.PACKAGE,
}


@pytest.fixture
def path(npm, request, tmp_path, monkeypatch):
    """Only one client's program can be found, by the name under which it is usually installed."""

    def only(kind):
        place = tmp_path / "bin"
        place.mkdir()
        (place / kind).symlink_to(program_or_skip(PACKAGES[kind]))
        monkeypatch.setenv("PATH", f"{place}:/usr/local/bin:/usr/bin:/bin")

    return only


def connect(kind, *more):
    return CliRunner().invoke(app, ["connect", kind, *more, "--json"])


@pytest.mark.parametrize("kind", PACKAGES)
def test_the_clients_own_program_sees_every_tool_that_is_served(standing, path, kind):
    path(kind)
    _, token = standing.open_session()

    ended = connect(kind, "--url", standing.mcp_url, "--token", token, "--check")

    assert ended.exit_code == 0, (ended.output, ended.exception)
    answer = json.loads(ended.stdout)
    assert "workspace_read" in answer["served"]
    assert answer["seen_by_client"] == answer["served"]
