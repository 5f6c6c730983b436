"""Fixtures of the acceptance tests: the agents, and the scripted model behind them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from acceptance.agents import claude
from acceptance.agents.install import AgentPackage, AgentUnavailable, default_cache, install
from acceptance.model_server.script import Script
from acceptance.model_server.server import ModelServer
from acceptance.running import POLICIES, Running
from codesdk.cli.stack.stack import Stack
from codesdk.settings import Settings


def program_or_skip(package: AgentPackage) -> Path:
    """The installed CLI; without one the test is skipped with the reason, and with CI=true it fails."""
    try:
        return install(package, default_cache())
    except AgentUnavailable as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{missing}; with CI=true the real agents must run", pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def claude_program(npm: str) -> Path:
    """Claude Code, from the registry that `npm` is set up for."""
    return program_or_skip(claude.PACKAGE)


@pytest.fixture(scope="session")
def stack(engine, sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product, started as `codesdk up` starts it."""
    settings = Settings(
        data_dir=tmp_path_factory.mktemp("stack"), port=0, policies_dir=POLICIES, docker_host=engine.host
    )
    with Stack(settings, lambda _line: None) as stack:
        yield Running(stack.daemon)


@pytest.fixture
def scripted_model() -> Iterator[Callable[[Script], ModelServer]]:
    """Starts scripted models that end with the test."""
    with ExitStack() as running:
        yield lambda script: running.enter_context(ModelServer(script))


@pytest.fixture
def run_claude(
    claude_program: Path, scripted_model: Callable[[Script], ModelServer], stack, tmp_path: Path
) -> Iterator[Callable[[Script, str], claude.ClaudeCode]]:
    """Starts Claude Code on a script, with the MCP host of `stack` and a session's token as its only source of tools."""
    with ExitStack() as running:

        def start(script: Script, token: str) -> claude.ClaudeCode:
            model = scripted_model(script)
            return running.enter_context(
                claude.ClaudeCode(
                    claude_program, tmp_path / "claude", model_url=model.url, mcp_url=stack.url, token=token
                )
            )

        yield start
