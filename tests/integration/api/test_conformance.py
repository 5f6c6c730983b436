"""The official conformance suite against the served host, in both protocol eras; no scenario is expected to fail.

The suite (`@modelcontextprotocol/conformance`) and the Node that it needs come from npm by the lock file in
`acceptance/agents/pins/mcp-conformance`. The tools, prompts and resources that it expects are added in this entry point
only (`conformance.fixtures`), in addition to the host's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from acceptance.agents.install import INSTALL_LIMIT_S, AgentPackage
from acceptance.conftest import program_or_skip
from conformance.fixtures import equip

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(INSTALL_LIMIT_S + 180),  # the first test may have to install the suite
    pytest.mark.filterwarnings(
        "ignore::mcp.shared.exceptions.MCPDeprecationWarning"
    ),  # logging and sampling, asked for
]

SUITE = AgentPackage(name="mcp-conformance", binary="node_modules/node-linux-*/bin/node")
LIMIT_S = 150.0
CHECKS = {"2025-11-25": 84, "2026-07-28": 152}
"""How many checks each era has in this version of the suite: fewer would mean that something was skipped."""


@pytest.fixture(scope="module")
def node(npm):
    """The Node that the suite needs: the machine's may be older."""
    return program_or_skip(SUITE)


class LetIn:
    """ASGI: gives requests without a token one, since the suite cannot send any."""

    def __init__(self, app):
        equip(app.state.mcp.server)
        self._app = app
        self.token = ""

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and not any(name == b"authorization" for name, _ in scope["headers"]):
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {self.token}".encode())]}
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def equipped(tmp_path_factory, helpers):
    """The host with the suite's tools; its address."""
    made = []

    def around(app):
        made.append(LetIn(app))
        return made[0]

    with helpers.running(tmp_path_factory.mktemp("conformance"), 10.0, around) as stack:
        _, made[0].token = stack.open_session()
        yield stack.mcp_url


@pytest.mark.parametrize("era", CHECKS)
def test_every_scenario_of_the_official_suite_passes(node, equipped, tmp_path, era):
    suite = node.parents[2] / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    line = [node, suite, "server", "--url", equipped, "--suite", "all", "--spec-version", era, "-o", tmp_path]
    ended = subprocess.run(
        line, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=tmp_path, env={"HOME": str(tmp_path)}
    )

    checks = [check for path in tmp_path.rglob("checks.json") for check in json.loads(path.read_text())]
    wrong = [
        f"{check['id']}: {check.get('errorMessage')}"
        for check in checks
        if check["status"] in ("FAILURE", "WARNING", "SKIPPED")
    ]
    assert wrong == []
    assert sum(check["status"] == "SUCCESS" for check in checks) == CHECKS[era], (
        ended.stdout[-3000:] + ended.stderr[-2000:]
    )
    assert ended.returncode == 0, ended.stdout[-3000:]


INSPECTOR = AgentPackage(
    name="mcp-inspector", binary="node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
)
BRIDGE = "import sys; from codesdk.mcphost.stdio_bridge import main as bridge; bridge.run(sys.argv[1], sys.argv[2])"


@pytest.fixture(scope="module")
def inspector(npm):
    """The inspector's command line, of the same publisher."""
    return program_or_skip(INSPECTOR)


@pytest.mark.parametrize("way", ["http", "stdio"])
def test_the_inspector_lists_and_calls_tools_over_http_and_through_the_bridge(node, inspector, standing, tmp_path, way):
    session, token = standing.open_session()
    over = {
        "http": [standing.mcp_url, "--transport", "http", "--header", f"Authorization: Bearer {token}"],
        "stdio": [sys.executable, "-c", BRIDGE, standing.mcp_url, token],
    }[way]

    def inspect(*asked):
        ended = subprocess.run(
            [node, inspector, "--cli", *over, *asked],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"], "MCP_CATALOG_PATH": str(tmp_path / "catalog")},
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)

    listed = inspect("--method", "tools/list")
    called = inspect("--method", "tools/call", "--tool-name", "workspace_read", "--tool-arg", "path=a.txt")

    assert "workspace_read" in {tool["name"] for tool in listed["tools"]}
    assert called["structuredContent"]["content"] == "hello\n"
    assert standing.types(session)[-1] == "tool.call.completed"
