"""Fixtures of the acceptance tests: the agents and the scripted model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acceptance.agents import claude, opencode, qwen
from acceptance.agents.agent import CALL_LIMIT_S, Agent, Wiring
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
def qwen_program(npm: str) -> Path:
    """Qwen Code, likewise."""
    return program_or_skip(qwen.PACKAGE)


@pytest.fixture(scope="session")
def opencode_program(npm: str) -> Path:
    """OpenCode, likewise."""
    return program_or_skip(opencode.PACKAGE)


@pytest.fixture(scope="session")
def stack(engine, sandbox_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The product, started as `codesdk up` starts it."""
    settings = Settings(
        data_dir=tmp_path_factory.mktemp("stack"),
        port=0,
        policies_dir=POLICIES,
        docker_host=engine.host,
        trust_clients=True,  # so that agents which can be asked are: what they say by themselves must not count
    )
    with Stack(settings, lambda _line: None) as stack:
        yield Running(stack.daemon)


@pytest.fixture
def scripted_model() -> Iterator[Callable[[Script], ModelServer]]:
    """Starts scripted models that end with the test."""
    with ExitStack() as running:
        yield lambda script: running.enter_context(ModelServer(script))


@pytest.fixture
def start_agent(
    scripted_model: Callable[[Script], ModelServer], stack, tmp_path: Path
) -> Iterator[Callable[..., Agent]]:
    """Starts an agent on a script, with the MCP host of `stack` and a session's token as its only source of tools."""
    with ExitStack() as running:

        def start(
            kind: Callable[..., Agent],
            program: Path,
            script: Script,
            token: str,
            *,
            call_limit_s: float = CALL_LIMIT_S,
            **more: Any,
        ) -> Agent:
            wiring = Wiring(scripted_model(script).url, stack.url, token, call_limit_s)
            return running.enter_context(kind(program, tmp_path / kind.__name__, wiring, **more))

        yield start


@pytest.fixture
def run_claude(claude_program: Path, start_agent: Callable[..., Agent]) -> Callable[..., Agent]:
    """Starts Claude Code: `run_claude(script, token)`."""
    return partial(start_agent, claude.ClaudeCode, claude_program)


@pytest.fixture
def run_qwen(qwen_program: Path, start_agent: Callable[..., Agent]) -> Callable[..., Agent]:
    """Starts Qwen Code: `run_qwen(script, token)`."""
    return partial(start_agent, qwen.QwenCode, qwen_program)


@pytest.fixture
def run_opencode(opencode_program: Path, start_agent: Callable[..., Agent]) -> Callable[..., Agent]:
    """Starts OpenCode: `run_opencode(script, token)`."""
    return partial(start_agent, opencode.OpenCode, opencode_program)
