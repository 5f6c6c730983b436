"""Starts of each client's program for `connect --check`: command lines, environments, and the built-in tools to ask for.

A line names only a model, a prompt and the most permissive mode: every setting that the check is about comes from the files.
Pure functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codesdk.cli.client_config.clients import TOKEN_VARIABLE, ClientKind, Endpoint
from codesdk.cli.client_config.fake_model_api import FETCHED
from codesdk.cli.client_config.model_answers import ToolUse

_KEY = "no-model-here"


@dataclass(frozen=True)
class CheckPlace:
    """Where a program is started."""

    project: Path
    """Its working directory."""
    fake_model_api: str
    """URL."""
    others: tuple[str, ...] = ()
    """Names of the user's other MCP servers, which must not be started."""


@dataclass(frozen=True)
class LaunchSpec:
    """A program's command line and environment."""

    line: list[str]
    env: dict[str, str] = field(default_factory=dict)
    login: tuple[Path, str] | None = None
    """A file that the program needs to reach its model, and its text."""


@dataclass(frozen=True)
class Traces:
    """What built-in tools would leave, in the directory where the program runs."""

    place: Path
    fake_model_api: str
    """URL."""

    @property
    def fetch(self) -> str:
        """A page that a tool for fetching asks for."""
        return self.fake_model_api + FETCHED

    @property
    def shell(self) -> str:
        """A harmless command that leaves a file."""
        return f"touch {self.place / 'shell'}"

    @property
    def written(self) -> str:
        """The file that a tool for writing leaves."""
        return str(self.place / "written")

    @property
    def readable(self) -> str:
        """The file that a tool for reading would show to the model."""
        return str(self.place / "readable.txt")


@dataclass(frozen=True)
class ClientProgram:
    """A client's program."""

    name: str
    start: Callable[[str, CheckPlace], LaunchSpec]
    """The first argument is the program's path."""
    uses: Callable[[Traces], list[ToolUse]]
    """Calls of its built-in tools, whose traces the check looks for."""


def _claude(program: str, at: CheckPlace) -> LaunchSpec:
    line = [program, "-p", "x", "--output-format", "stream-json", "--verbose"]
    env = {"ANTHROPIC_BASE_URL": at.fake_model_api, "ANTHROPIC_API_KEY": _KEY, "DISABLE_AUTOUPDATER": "1"}
    more = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}
    return LaunchSpec([*line, "--allowedTools", "Bash,Read,Write,WebFetch"], env | more)


def _claude_uses(to: Traces) -> list[ToolUse]:
    return [
        ToolUse("Bash", {"command": to.shell, "description": "x"}),
        ToolUse("Write", {"file_path": to.written, "content": "x"}),
        ToolUse("Read", {"file_path": to.readable}),
        ToolUse("WebFetch", {"url": to.fetch, "prompt": "x"}),
    ]


def _codex(program: str, at: CheckPlace) -> LaunchSpec:
    provider = {"name": "none", "base_url": f"{at.fake_model_api}/v1", "env_key": "CHECK_KEY", "wire_api": "responses"}
    settings: dict[str, Any] = {"model": "none", "model_provider": "none"}
    settings |= {f"model_providers.none.{key}": value for key, value in provider.items()}
    settings |= {"model_providers.none.request_max_retries": 0, "model_providers.none.stream_max_retries": 0}
    settings |= {f"mcp_servers.{json.dumps(other)}.enabled": False for other in at.others}
    given = [word for key, value in settings.items() for word in ("-c", f"{key}={json.dumps(value)}")]
    line = [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *given, "x"]
    return LaunchSpec(line, {"CHECK_KEY": _KEY})


def _codex_uses(to: Traces) -> list[ToolUse]:
    patch = f"*** Begin Patch\n*** Add File: {to.written}\n+x\n*** End Patch\n"
    return [
        ToolUse("exec_command", {"cmd": to.shell}),
        ToolUse("shell_command", {"command": to.shell}),
        ToolUse("shell", {"command": to.shell.split(" ", 1)}),
        ToolUse("apply_patch", {}, freeform=patch),
        ToolUse("view_image", {"path": to.readable}),
    ]


def _gemini(program: str, at: CheckPlace) -> LaunchSpec:
    # With another address it would choose a kind of login that it then refuses.
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"maxAttempts": 1, "enableAutoUpdate": False},
    }
    env = {"GEMINI_API_KEY": _KEY, "GOOGLE_GEMINI_BASE_URL": at.fake_model_api, "GEMINI_CLI_NO_RELAUNCH": "true"}
    env |= {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
    line = [program, "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "-p", "x"]
    return LaunchSpec(line, env, (at.project / ".gemini" / "settings.json", json.dumps(settings)))


def _gemini_uses(to: Traces) -> list[ToolUse]:
    return [
        ToolUse("run_shell_command", {"command": to.shell, "is_background": False}),
        ToolUse("write_file", {"file_path": to.written, "content": "x"}),
        ToolUse("read_file", {"file_path": to.readable}),
        ToolUse("web_fetch", {"prompt": f"Summarize {to.fetch}", "url": to.fetch}),
    ]


def _opencode(program: str, at: CheckPlace) -> LaunchSpec:
    options = {"baseURL": f"{at.fake_model_api}/v1", "apiKey": _KEY}
    model = {"name": "none", "limit": {"context": 128_000, "output": 8_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"none": model}}
    settings = {"provider": {"none": provider}, "autoupdate": False, "share": "disabled", "snapshot": False}
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "CLAUDE_CODE")
    env = {"OPENCODE_CONFIG_CONTENT": json.dumps(settings)} | {f"OPENCODE_DISABLE_{name}": "1" for name in off}
    return LaunchSpec([program, "run", "--model", "none/none", "x"], env)


def _opencode_uses(to: Traces) -> list[ToolUse]:
    return [
        ToolUse("bash", {"command": to.shell, "description": "x"}),
        ToolUse("write", {"filePath": to.written, "content": "x"}),
        ToolUse("read", {"filePath": to.readable}),
        ToolUse("webfetch", {"url": to.fetch, "format": "text"}),
    ]


def _qwen(program: str, at: CheckPlace) -> LaunchSpec:
    env = {
        "OPENAI_API_KEY": _KEY,
        "OPENAI_BASE_URL": f"{at.fake_model_api}/v1",
        "OPENAI_MODEL": "none",
        "QWEN_CODE_NO_RELAUNCH": "true",
        # It sends loopback requests through a proxy too and ignores NO_PROXY.
        "HTTP_PROXY": "",
        "HTTPS_PROXY": "",
    }
    return LaunchSpec([program, "--auth-type", "openai", "--approval-mode", "yolo", "-p", "x"], env)


def _qwen_uses(to: Traces) -> list[ToolUse]:
    return [
        ToolUse("run_shell_command", {"command": to.shell, "is_background": False}),
        ToolUse("write_file", {"file_path": to.written, "content": "x"}),
        ToolUse("read_file", {"file_path": to.readable}),
        ToolUse("web_fetch", {"url": to.fetch, "prompt": "x"}),
    ]


def _kimi(program: str, at: CheckPlace) -> LaunchSpec:
    env = {
        "KIMI_MODEL_NAME": "none",
        "KIMI_MODEL_API_KEY": _KEY,
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
        "KIMI_MODEL_BASE_URL": f"{at.fake_model_api}/v1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }
    return LaunchSpec([program, "-p", "x", "--output-format", "stream-json"], env)


def _kimi_uses(to: Traces) -> list[ToolUse]:
    return [
        ToolUse("Bash", {"command": to.shell}),
        ToolUse("Write", {"path": to.written, "content": "x"}),
        ToolUse("Read", {"path": to.readable}),
        ToolUse("FetchURL", {"url": to.fetch}),
    ]


PROGRAMS: dict[ClientKind, ClientProgram] = {
    ClientKind.CLAUDE: ClientProgram("claude", _claude, _claude_uses),
    ClientKind.CODEX: ClientProgram("codex", _codex, _codex_uses),
    ClientKind.GEMINI: ClientProgram("gemini", _gemini, _gemini_uses),
    ClientKind.OPENCODE: ClientProgram("opencode", _opencode, _opencode_uses),
    ClientKind.QWEN: ClientProgram("qwen", _qwen, _qwen_uses),
    ClientKind.KIMI: ClientProgram("kimi", _kimi, _kimi_uses),
}
"""Programs that can be checked."""


def client_environment(to: Endpoint, home: Path, path: str) -> dict[str, str]:
    """Return the program's environment: its own home, the token, and a dead proxy.

    The proxy blocks everything but loopback and the session's host. Nothing comes from the user's environment.
    """
    dead = "http://127.0.0.1:9"
    proxies = {
        "HTTP_PROXY": dead,
        "HTTPS_PROXY": dead,
        "NO_PROXY": f"127.0.0.1,localhost,[::1],{urlsplit(to.url).hostname}",
    }
    homes = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".local")}
    return {"PATH": path, TOKEN_VARIABLE: to.token, "LANG": "C.UTF-8", "TERM": "dumb", **homes, **proxies}
