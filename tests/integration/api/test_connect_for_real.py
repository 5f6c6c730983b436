"""`codesdk connect` with the clients' own programs: they read what it writes, and see the tools that it reports."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acceptance.agents import claude, codex, gemini, kimi, opencode, qwen
from acceptance.agents.install import INSTALL_LIMIT_S
from acceptance.agents.process import AgentProcess, Rooms, private_env
from acceptance.conftest import program_or_skip
from codesdk.cli.app import app
from codesdk.cli.client_config.client_check import BuiltInsOn
from codesdk.cli.client_config.clients import CLIENTS, ClientKind, SecondFile
from codesdk.cli.client_config.settings import ConfigEntry

pytestmark = [pytest.mark.node, pytest.mark.timeout(INSTALL_LIMIT_S + 180)]

LIST_S = 90.0
PACKAGES = {
    "claude": claude.PACKAGE,
    "codex": codex.PACKAGE,
    "gemini": gemini.PACKAGE,
    "opencode": opencode.PACKAGE,
    "qwen": qwen.PACKAGE,
    "kimi": kimi.PACKAGE,
}
OTHER_VERSIONS = {
    "claude": replace(claude.PACKAGE, name="claude-code-newer"),
    "codex": replace(codex.PACKAGE, name="codex-older"),
    "gemini": replace(gemini.PACKAGE, name="gemini-cli-older"),
    "opencode": replace(opencode.PACKAGE, name="opencode-older"),
    "qwen": replace(qwen.PACKAGE, name="qwen-code-newer", binary="node_modules/@qwen-code/qwen-code/cli-entry.js"),
    "kimi": replace(kimi.PACKAGE, name="kimi-code-older"),
}
"""With those of `PACKAGES`: the newest version when the pins were made, and one older."""
VERSIONS = [(kind, package) for packages in (PACKAGES, OTHER_VERSIONS) for kind, package in packages.items()]


@pytest.fixture
def path(npm, request, tmp_path, monkeypatch):
    """Only one client's program can be found, by the name under which it is usually installed."""

    def only(kind, package=None):
        place = tmp_path / "bin"
        place.mkdir()
        program = program_or_skip(package or PACKAGES[kind])
        if kind == "kimi":  # a script that needs a newer Node than there may be
            (place / kind).write_text(f'#!/bin/sh\nexec "{program}" "{kimi.script(program)}" "$@"\n')
            (place / kind).chmod(0o755)
        else:
            (place / kind).symlink_to(program)
        monkeypatch.setenv("PATH", f"{place}:/usr/local/bin:/usr/bin:/bin")

    return only


def connect(kind, *more):
    return CliRunner().invoke(app, ["connect", kind, *more, "--json"])


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version[1].name)
def test_the_clients_own_program_sees_the_sessions_tools_and_has_no_others(
    standing, path, version, tmp_path, monkeypatch
):
    """The check asks it for its shell, and for its tools that write, read and fetch, in its most permissive mode."""
    path(*version)
    kind, _ = version
    _, token = standing.open_session()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    ended = connect(kind, "--url", standing.mcp_url, "--token", token, "--write", "--check")

    assert ended.exit_code == 0, (ended.output, ended.exception)
    answer = json.loads(ended.stdout)
    assert "workspace_read" in answer["served"]
    assert answer["seen_by_client"] == answer["served"]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: version[1].name)
def test_the_clients_own_program_runs_its_shell_where_no_setting_of_ours_switches_it_off(
    standing, path, version, monkeypatch
):
    """Without this the test above would prove nothing: the program would not know the tools by the names asked for."""
    path(*version)
    kind, _ = version
    _, token = standing.open_session()
    client = CLIENTS[ClientKind(kind)]
    monkeypatch.setitem(
        CLIENTS, ClientKind(kind), replace(client, piece=lambda to: bare(client, to), second=OPEN[kind])
    )

    fault = connect(kind, "--url", standing.mcp_url, "--token", token, "--check").exception

    assert isinstance(fault, BuiltInsOn), fault
    assert "shell" in fault.details["ran"]


def bare(client, to):
    piece = client.piece(to)
    return ConfigEntry(piece.path, piece.entry)


OPEN = dict.fromkeys(PACKAGES) | {
    "claude": SecondFile(".claude/settings.local.json", ConfigEntry(("enabledMcpjsonServers",), ["codesdk"]))
}
"""The second file of a configuration that switches nothing off."""


OTHER = "http://127.0.0.1:9/other"
"""Nothing listens there."""
FILES = {
    "claude": (
        ".mcp.json",
        f"""\
{{
    "mcpServers": {{
        "other": {{ "type": "http", "url": "{OTHER}" }}
    }}
}}
""",
    ),
    "codex": (
        ".codex/config.toml",
        f"""\
# what I like
model = "none"  # the good one

[mcp_servers.other]
url = "{OTHER}"
""",
    ),
    "gemini": (
        ".gemini/settings.json",
        f"""\
{{
    // in other folders it has no servers
    "security": {{ "folderTrust": {{ "enabled": false }} }},
    "mcpServers": {{
        "other": {{ "httpUrl": "{OTHER}" }} // stays
    }}
}}
""",
    ),
    "opencode": (
        ".config/opencode/opencode.json",
        f"""\
{{
    "autoupdate": false, // never
    "mcp": {{
        /* the other one */
        "other": {{ "type": "remote", "url": "{OTHER}", "enabled": false }},
    }},
}}
""",
    ),
    "qwen": (
        ".qwen/settings.json",
        f"""\
{{
    // what I like
    "privacy": {{ "usageStatisticsEnabled": false }},
    "mcpServers": {{ "other": {{ "httpUrl": "{OTHER}" }} }}
}}
""",
    ),
}
"""What a user may have already: the client's file, beneath the home (Claude Code's: the project)."""
COMMENTS = ["# what I like", "# the good one", "// in other folders it has no servers", "// stays", "// never"]
COMMENTS += ["/* the other one */", "// what I like"]
SAYS = {
    "claude": "Pending approval",
    "codex": "enabled",
    "gemini": "Connected",
    "opencode": "connected",
    "qwen": "codesdk mcp --tell-agent",
}
"""What the program's own list says of our server. Qwen Code's waits 5 s for each, which is too short on a busy machine. Claude Code asks its user about a project's servers first, Codex only reads."""


@pytest.mark.parametrize("kind", FILES)
def test_the_clients_own_program_reads_what_was_merged_into_its_file(standing, path, kind, tmp_path, monkeypatch):
    path(kind)
    sandbox_registry = Rooms.beneath(tmp_path / "user")
    monkeypatch.setenv("HOME", str(sandbox_registry.home))
    monkeypatch.chdir(sandbox_registry.work)
    name, before = FILES[kind]
    file = (sandbox_registry.work if kind == "claude" else sandbox_registry.home) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before)
    _, token = standing.open_session()

    ended = connect(kind, "--url", standing.mcp_url, "--token", token, "--write")
    answer, merged = json.loads(ended.stdout), file.read_text()  # Qwen Code writes its file anew when it starts
    # Qwen Code sends loopback through a proxy too, whatever NO_PROXY says.
    direct = {"HTTP_PROXY": "", "HTTPS_PROXY": ""} if kind == "qwen" else {}
    env = private_env(sandbox_registry, {"PATH": os.environ["PATH"], "CODESDK_TOKEN": token, **direct})
    with AgentProcess([str(tmp_path / "bin" / kind), "mcp", "list"], env, sandbox_registry) as process:
        listed = process.finish(LIST_S)

    said = "\n".join([*listed.lines, listed.stderr_tail])
    assert listed.code == 0, said
    ours = next((line for line in said.splitlines() if "codesdk" in line), "")
    assert SAYS[kind] in ours, said
    assert standing.mcp_url in said
    assert "other" in said
    assert (answer["file"], Path(answer["kept"]).read_text()) == (str(file), before)
    assert [comment for comment in COMMENTS if comment in before and comment not in merged] == []
