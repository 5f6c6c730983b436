"""Command lines that start each client's program so that it connects and shows its tools.

Writes only configuration files.

Each program gets a home of its own with only our configuration, and the fake model API instead of its model.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codesdk.cli.client_config.clients import (
    CLIENTS,
    SERVER_NAME,
    TOKEN_VARIABLE,
    ClientKind,
    Endpoint,
    as_json,
    as_toml,
)

_KEY = "no-model-here"


@dataclass(frozen=True)
class LaunchSpec:
    """A program's command line and environment."""

    line: list[str]
    env: dict[str, str] = field(default_factory=dict)


Prepare = Callable[[str, Endpoint, Path, str], LaunchSpec]
"""Arguments: the program's path, the session's endpoint, an empty home directory, and the URL of the fake model API."""


def _claude(program: str, to: Endpoint, home: Path, fake_model_api: str) -> LaunchSpec:
    config = _write_file(home / "mcp.json", as_json(CLIENTS[ClientKind.CLAUDE].piece(to)))
    line = [program, "-p", "x", "--output-format", "stream-json", "--verbose", "--bare", "--tools", ""]
    env = {"ANTHROPIC_BASE_URL": fake_model_api, "ANTHROPIC_API_KEY": _KEY, "DISABLE_AUTOUPDATER": "1"}
    more = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}
    return LaunchSpec([*line, "--strict-mcp-config", "--mcp-config", str(config)], env | more)


def _codex(program: str, to: Endpoint, home: Path, fake_model_api: str) -> LaunchSpec:
    provider = f"""\
model = "none"
model_provider = "ear"

[model_providers.ear]
name = "ear"
base_url = "{fake_model_api}/v1"
env_key = "CHECK_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

"""
    _write_file(home / ".codex" / "config.toml", provider + as_toml(CLIENTS[ClientKind.CODEX].piece(to)))
    line = [program, "exec", "--skip-git-repo-check", "x"]
    return LaunchSpec(line, {"CODEX_HOME": str(home / ".codex"), "CHECK_KEY": _KEY})


def _gemini(program: str, to: Endpoint, home: Path, fake_model_api: str) -> LaunchSpec:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"maxAttempts": 1, "enableAutoUpdate": False},
    }
    _write_file(home / ".gemini" / "settings.json", _merge_entry(settings, to, ClientKind.GEMINI))
    env = {"GEMINI_API_KEY": _KEY, "GOOGLE_GEMINI_BASE_URL": fake_model_api, "GEMINI_CLI_NO_RELAUNCH": "true"}
    return LaunchSpec([program, "-m", "gemini-2.5-flash", "-p", "x"], env)


def _opencode(program: str, to: Endpoint, home: Path, fake_model_api: str) -> LaunchSpec:
    options = {"baseURL": f"{fake_model_api}/v1", "apiKey": _KEY}
    model = {"name": "none", "limit": {"context": 128_000, "output": 8_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"none": model}}
    settings = {"provider": {"ear": provider}, "autoupdate": False, "share": "disabled", "snapshot": False}
    _write_file(home / ".config" / "opencode" / "opencode.json", _merge_entry(settings, to, ClientKind.OPENCODE))
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "PROJECT_CONFIG", "CLAUDE_CODE")
    line = [program, "run", "--model", "ear/none", "x"]
    return LaunchSpec(line, {f"OPENCODE_DISABLE_{name}": "1" for name in off})


def _qwen(program: str, to: Endpoint, home: Path, fake_model_api: str) -> LaunchSpec:
    settings = {"general": {"disableAutoUpdate": True}, "privacy": {"usageStatisticsEnabled": False}}
    _write_file(home / ".qwen" / "settings.json", _merge_entry(settings, to, ClientKind.QWEN))
    env = {
        "OPENAI_API_KEY": _KEY,
        "OPENAI_BASE_URL": f"{fake_model_api}/v1",
        "OPENAI_MODEL": "none",
        "QWEN_CODE_NO_RELAUNCH": "true",
        # It sends loopback requests through a proxy too and ignores NO_PROXY.
        "HTTP_PROXY": "",
        "HTTPS_PROXY": "",
    }
    line = [program, "--auth-type", "openai", "--exclude-tools", "tool_search", "--approval-mode", "yolo", "-p", "x"]
    return LaunchSpec(line, env)


def _kimi(program: str, to: Endpoint, home: Path, fake_model_api: str) -> LaunchSpec:
    _write_file(home / ".kimi-code" / "mcp.json", as_json(CLIENTS[ClientKind.KIMI].piece(to)))
    env = {
        "KIMI_MODEL_NAME": "none",
        "KIMI_MODEL_API_KEY": _KEY,
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
        "KIMI_MODEL_BASE_URL": f"{fake_model_api}/v1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }
    return LaunchSpec([program, "-p", "x", "--output-format", "stream-json"], env)


PROGRAMS: dict[ClientKind, tuple[str, Prepare]] = {
    ClientKind.CLAUDE: ("claude", _claude),
    ClientKind.CODEX: ("codex", _codex),
    ClientKind.GEMINI: ("gemini", _gemini),
    ClientKind.OPENCODE: ("opencode", _opencode),
    ClientKind.QWEN: ("qwen", _qwen),
    ClientKind.KIMI: ("kimi", _kimi),
}
"""Programs that can be checked, with the name of their executable."""


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


def _merge_entry(settings: dict[str, Any], to: Endpoint, kind: ClientKind) -> str:
    piece = CLIENTS[kind].piece(to)
    return json.dumps({**settings, piece.path[0]: {SERVER_NAME: piece.entry}})


def _write_file(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch(mode=0o600)
    place.write_text(text, encoding="utf-8")
    return place
