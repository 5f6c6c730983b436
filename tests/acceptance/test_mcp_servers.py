"""Four third-party MCP servers, added as the how-to describes and used by Claude Code with a scripted model."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from acceptance.agents.agent import Wiring
from acceptance.agents.claude import ClaudeCode
from acceptance.agents.install import INSTALL_LIMIT_S, AgentUnavailable
from acceptance.model_server.script import Call, script
from acceptance.model_server.server import ModelServer
from acceptance.running import Running
from codesdk.cli.app import app
from codesdk.cli.stack.stack import Stack
from codesdk.provision.images.mcp_packages import PackageMissing
from codesdk.settings import Settings
from mcp_servers import image_of_servers
from stage import REPOSITORY

pytestmark = [
    pytest.mark.node,
    pytest.mark.engine,
    pytest.mark.redis,
    pytest.mark.timeout(2 * INSTALL_LIMIT_S + 120),
]

NODE = "/opt/mcp/node"
MODULES = "/opt/mcp/node_modules/@modelcontextprotocol"
COMMANDS = {
    "time": ["python3", "-m", "mcp_server_time", "--local-timezone", "UTC"],
    "git": ["python3", "-m", "mcp_server_git"],
    "files": [NODE, f"{MODULES}/server-filesystem/dist/index.js", "/workspace"],
    "everything": [NODE, f"{MODULES}/server-everything/dist/index.js"],
}
SEES_THE_WORKSPACE = ("git", "files")
SEED = {
    "note.txt": "kept by the session",
    "repo/.git/HEAD": "ref: refs/heads/main\n",
    "repo/.git/config": "[core]\n\trepositoryformatversion = 0\n\tbare = false\n",
    "repo/.git/objects/info/none": "",
    "repo/.git/refs/heads/.none": "",
    "repo/new.py": "print(1)\n",
}
"""What the session's workspace holds, a repository among it, as `git init` makes one."""
POLICY = """\
version: 1
name: servers
default: deny
rules:
  - {id: servers, effect: allow, tool: ["time.*", "git.*", "files.*", "everything.*"]}
  - {id: no-environment, effect: deny, tool: everything.get-env, reason: Nobody needs its environment.}
"""


@pytest.fixture(scope="module")
def settings(engine, sandbox_image, tmp_path_factory):
    try:
        image = image_of_servers(engine.host, sandbox_image)
    except (AgentUnavailable, PackageMissing) as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}; with CI=true the real servers must run", pytrace=False)
        pytest.skip(str(missing))
    root = tmp_path_factory.mktemp("servers")
    tools, policies = root / "tools", root / "policies"
    tools.mkdir()
    policies.mkdir()
    (policies / "policy.yaml").write_text(POLICY)
    (tools / "workspace.read.yaml").write_text((REPOSITORY / "tool-registry" / "workspace.read.yaml").read_text())
    for name, argv in COMMANDS.items():
        manifest = {
            "kind": "mcp",
            "name": name,
            "version": "1.0.0",
            "title": name.capitalize(),
            "description": "A reference server, from its package index.",
            "argv": argv,
            "env": {"PYTHONPATH": f"/opt/mcp/{name}"},
            "image": "mcp-servers",
            "start_s": 60,
            **({"workspace": "read"} if name in SEES_THE_WORKSPACE else {}),
        }
        (tools / f"{name}.yaml").write_text(json.dumps(manifest))
    (root / "images.yaml").write_text(f"version: 1\nimages:\n  mcp-servers: {image}\n")
    return Settings(
        data_dir=root / "data",
        port=0,
        registry_dir=tools,
        policies_dir=policies,
        images_file=str(root / "images.yaml"),
        docker_host=engine.host,
    )


@pytest.fixture(scope="module")
def pinned(settings):
    """What `codesdk tools pin` said of each, before the product runs."""
    given = {
        "CODESDK_DATA_DIR": str(settings.data_dir),
        "CODESDK_REGISTRY_DIR": str(settings.registry_dir),
        "CODESDK_IMAGES_FILE": str(settings.images_file),
        "CODESDK_DOCKER_HOST": settings.docker_host,
    }
    said = {}
    for name in COMMANDS:
        done = CliRunner().invoke(app, ["tools", "pin", name, "--json"], env=given, standalone_mode=False)
        assert done.return_value == 0, done.output
        said[name] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def servers(settings, pinned):
    """The running product, with these sources."""
    with Stack(settings, lambda _line: None) as stack:
        yield Running(stack.daemon)


def test_their_tools_are_accepted_without_a_finding(pinned):
    assert {name: (said["suspect"], said["refused"]) for name, said in pinned.items()} == {
        name: ({}, {}) for name in COMMANDS
    }
    assert {name: len(said["accepted"]) for name, said in pinned.items()} == {
        "time": 2,
        "git": 12,
        "files": 14,
        "everything": 13,
    }


def test_a_real_agent_uses_all_four_through_policy_and_record(servers, claude_program: Path, tmp_path: Path):
    session, token = servers.open_session(files=SEED)
    zones = {"source_timezone": "UTC", "time": "12:30", "target_timezone": "Asia/Tokyo"}
    turns = [
        [
            Call("time_convert_time", zones),
            Call("git_git_status", {"repo_path": "/workspace/repo"}),
            Call("files_write_file", {"path": "/workspace/note.txt", "content": "changed by a server"}),
            Call("everything_get-sum", {"a": 19, "b": 23}),
        ],
        [
            Call("files_read_text_file", {"path": "/workspace/note.txt"}),
            Call("everything_get-structured-content", {"location": "New York"}),
            Call("everything_get-env", {}),
        ],
    ]
    with (
        ModelServer(script(*turns)) as model,
        ClaudeCode(claude_program, tmp_path / "claude", Wiring(model.url, servers.url, token)) as agent,
    ):
        run = agent.finish()
    assert run.sound, run
    outcomes = {outcome.tool.removeprefix("mcp__codesdk__"): outcome for outcome in run.outcomes}
    # What policy can never allow is not listed, so the agent does not have it.
    refused = {name for name, outcome in outcomes.items() if outcome.is_error}
    assert refused == {"everything_get-env", "files_write_file"}
    assert "21:30" in outcomes["time_convert_time"].text
    # Two servers see the session's files, and cannot change them.
    assert "No commits yet" in outcomes["git_git_status"].text
    assert "new.py" in outcomes["git_git_status"].text
    assert "EROFS" in outcomes["files_write_file"].text
    assert "42" in outcomes["everything_get-sum"].text
    assert "kept by the session" in outcomes["files_read_text_file"].text
    assert "temperature" in outcomes["everything_get-structured-content"].text
    ended = [event["payload"] for event in servers.events(session) if event["type"] == "tool.call.completed"]
    assert sorted(payload["name"] for payload in ended) == [
        "everything.get-structured-content",
        "everything.get-sum",
        "files.read_text_file",
        "files.write_file",
        "git.git_status",
        "time.convert_time",
    ]
    assert [payload["name"] for payload in ended if payload.get("is_error")] == ["files.write_file"]
    servers.close_session(session)
