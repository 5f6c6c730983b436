"""How each client's own program is started so that it connects, and shows which tools it sees. Pure but for its files.

Each gets a home of its own, with our piece of configuration and nothing of its user's, and the ear in its model's place.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from codesdk.cli.connecting.clients import CLIENTS, SERVER, TOKEN_VARIABLE, Endpoint, Kind, as_json, as_toml

_KEY = "no-model-here"


@dataclass(frozen=True)
class Started:
    """A program's command line and what it finds in its environment."""

    line: list[str]
    env: dict[str, str] = field(default_factory=dict)


Prepare = Callable[[str, Endpoint, Path, str], Started]
"""From the program's path, the session, a fresh home and the ear's URL."""


def _claude(program: str, to: Endpoint, home: Path, ear: str) -> Started:
    config = _put(home / "mcp.json", as_json(CLIENTS[Kind.CLAUDE].piece(to)))
    line = [program, "-p", "x", "--output-format", "stream-json", "--verbose", "--bare", "--tools", ""]
    env = {"ANTHROPIC_BASE_URL": ear, "ANTHROPIC_API_KEY": _KEY, "DISABLE_AUTOUPDATER": "1"}
    more = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "CLAUDE_CODE_MAX_RETRIES": "0"}
    return Started([*line, "--strict-mcp-config", "--mcp-config", str(config)], env | more)


def _codex(program: str, to: Endpoint, home: Path, ear: str) -> Started:
    provider = f"""\
model = "none"
model_provider = "ear"

[model_providers.ear]
name = "ear"
base_url = "{ear}/v1"
env_key = "CHECK_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0

"""
    _put(home / ".codex" / "config.toml", provider + as_toml(CLIENTS[Kind.CODEX].piece(to)))
    line = [program, "exec", "--skip-git-repo-check", "x"]
    return Started(line, {"CODEX_HOME": str(home / ".codex"), "CHECK_KEY": _KEY})


def _gemini(program: str, to: Endpoint, home: Path, ear: str) -> Started:
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"maxAttempts": 1, "enableAutoUpdate": False},
    }
    _put(home / ".gemini" / "settings.json", _joined(settings, to, Kind.GEMINI))
    env = {"GEMINI_API_KEY": _KEY, "GOOGLE_GEMINI_BASE_URL": ear, "GEMINI_CLI_NO_RELAUNCH": "true"}
    return Started([program, "-m", "gemini-2.5-flash", "-p", "x"], env)


def _opencode(program: str, to: Endpoint, home: Path, ear: str) -> Started:
    options = {"baseURL": f"{ear}/v1", "apiKey": _KEY}
    model = {"name": "none", "limit": {"context": 128_000, "output": 8_000}}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"none": model}}
    settings = {"provider": {"ear": provider}, "autoupdate": False, "share": "disabled", "snapshot": False}
    _put(home / ".config" / "opencode" / "opencode.json", _joined(settings, to, Kind.OPENCODE))
    off = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "PROJECT_CONFIG", "CLAUDE_CODE")
    line = [program, "run", "--model", "ear/none", "x"]
    return Started(line, {f"OPENCODE_DISABLE_{name}": "1" for name in off})


def _qwen(program: str, to: Endpoint, home: Path, ear: str) -> Started:
    settings = {"general": {"disableAutoUpdate": True}, "privacy": {"usageStatisticsEnabled": False}}
    _put(home / ".qwen" / "settings.json", _joined(settings, to, Kind.QWEN))
    env = {
        "OPENAI_API_KEY": _KEY,
        "OPENAI_BASE_URL": f"{ear}/v1",
        "OPENAI_MODEL": "none",
        "QWEN_CODE_NO_RELAUNCH": "true",
        # It sends loopback through a proxy too, whatever NO_PROXY says.
        "HTTP_PROXY": "",
        "HTTPS_PROXY": "",
    }
    line = [program, "--auth-type", "openai", "--exclude-tools", "tool_search", "--approval-mode", "yolo", "-p", "x"]
    return Started(line, env)


def _kimi(program: str, to: Endpoint, home: Path, ear: str) -> Started:
    _put(home / ".kimi-code" / "mcp.json", as_json(CLIENTS[Kind.KIMI].piece(to)))
    env = {
        "KIMI_MODEL_NAME": "none",
        "KIMI_MODEL_API_KEY": _KEY,
        "KIMI_MODEL_PROVIDER_TYPE": "openai",
        "KIMI_MODEL_BASE_URL": f"{ear}/v1",
        "KIMI_CODE_NO_AUTO_UPDATE": "1",
    }
    return Started([program, "-p", "x", "--output-format", "stream-json"], env)


PROGRAMS: dict[Kind, tuple[str, Prepare]] = {
    Kind.CLAUDE: ("claude", _claude),
    Kind.CODEX: ("codex", _codex),
    Kind.GEMINI: ("gemini", _gemini),
    Kind.OPENCODE: ("opencode", _opencode),
    Kind.QWEN: ("qwen", _qwen),
    Kind.KIMI: ("kimi", _kimi),
}
"""The programs that can be asked, by the name under which they are installed."""


def environment(to: Endpoint, home: Path, path: str) -> dict[str, str]:
    """What every program finds: its home and the token, nothing of its user's, and no way but to the session and to the ear."""
    dead = "http://127.0.0.1:9"
    proxies = {
        "HTTP_PROXY": dead,
        "HTTPS_PROXY": dead,
        "NO_PROXY": f"127.0.0.1,localhost,[::1],{urlsplit(to.url).hostname}",
    }
    homes = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".local")}
    return {"PATH": path, TOKEN_VARIABLE: to.token, "LANG": "C.UTF-8", "TERM": "dumb", **homes, **proxies}


def _joined(settings: dict[str, Any], to: Endpoint, kind: Kind) -> str:
    piece = CLIENTS[kind].piece(to)
    return json.dumps({**settings, piece.path[0]: {SERVER: piece.entry}})


def _put(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch(mode=0o600)
    place.write_text(text, encoding="utf-8")
    return place
