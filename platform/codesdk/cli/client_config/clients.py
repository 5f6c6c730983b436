"""Generates each client's configuration from an endpoint. Pure functions.

The keys and units were tested with the versions in `docs/how-to/connect-an-agent.md`; those of Cursor and VS Code are
from their documentation. Every entry sets the client's own timeout for a call if there is a key for it, because the
defaults run from 60 s to 600 s and change with versions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from codesdk.cli.client_config import built_ins
from codesdk.cli.client_config.settings import SERVER_NAME, ConfigEntry, Setting

URL_VARIABLE = "CODESDK_URL"
TOKEN_VARIABLE = "CODESDK_TOKEN"  # noqa: S105 (the name of a variable)
WAIT_VARIABLE = "CODESDK_CLIENT_WAIT_S"
"""The variable that `codesdk mcp` reads if the option isn't given. Clients that start the bridge set it in its
environment.
"""
WAIT_HEADER = "CodeSDK-Wait"


class ClientKind(StrEnum):
    """The supported clients."""

    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    QWEN = "qwen"
    KIMI = "kimi"
    CURSOR = "cursor"
    VSCODE = "vscode"
    GENERIC = "generic"


@dataclass(frozen=True)
class Endpoint:
    """A session's address and token for a client."""

    url: str
    token: str
    limit_s: int
    """The client's timeout for one call in seconds."""
    wait_s: int | None = None
    """Seconds within which each call is answered; None: the host's setting."""

    command: str = "codesdk"
    """The `codesdk` command with its full path: a client has another PATH than the user's shell."""

    def headers(self, token: str) -> dict[str, str]:
        """Return the request headers, with the token or the client's placeholder for it."""
        bounded = {} if self.wait_s is None else {WAIT_HEADER: str(self.wait_s)}
        return {"Authorization": f"Bearer {token}", **bounded}


@dataclass(frozen=True)
class SecondFile:
    """A client's second file, for the settings that its first one can't have."""

    name: str
    """Path relative to the directory of the first file."""
    piece: ConfigEntry
    toml: bool = False


@dataclass(frozen=True)
class ClientSpec:
    """One client."""

    title: str
    file: Callable[[Path, Path], Path]
    """Returns the path of its file, from the user's home and the project directory."""
    piece: Callable[[Endpoint], ConfigEntry]
    toml: bool = False
    holds_token: bool = False
    """Whether the file contains the token, because the client can't read it from elsewhere, or no way is known."""
    second: SecondFile | None = None
    stays_on: str | None = None
    """The built-in tools that no file of ours switches off, and what the user can do; None: all are off."""
    notes: tuple[str, ...] = ()
    """Further instructions for the user; `{limit_s}` is the timeout of a call in seconds."""


def _bridge(to: Endpoint, token: str) -> dict[str, Any]:
    """Start of the stdio bridge, which tells the agent if the session can't be used.

    For clients that otherwise go on without tools, and end with 0, if the server is down or the token is not valid.
    `token`: the token or the client's placeholder for it.
    """
    timed = {} if to.wait_s is None else {WAIT_VARIABLE: str(to.wait_s)}
    return {
        "command": to.command,
        "args": ["mcp", "--tell-agent", "--url", to.url],
        "env": {TOKEN_VARIABLE: token, **timed},
    }


def _claude(to: Endpoint) -> ConfigEntry:
    # Without `alwaysLoad` the model sees our tools only after a search for them.
    more = {"timeout": to.limit_s * 1000, "alwaysLoad": True}
    entry = {"type": "stdio", **_bridge(to, f"${{{TOKEN_VARIABLE}}}"), **more}
    return ConfigEntry(("mcpServers", SERVER_NAME), entry)


def _codex(to: Endpoint) -> ConfigEntry:
    entry: dict[str, Any] = {
        "url": to.url,
        "bearer_token_env_var": TOKEN_VARIABLE,
        "tool_timeout_sec": to.limit_s,
        "required": True,
        "default_tools_approval_mode": "approve",
    }
    if to.wait_s is not None:
        entry["http_headers"] = {WAIT_HEADER: str(to.wait_s)}
    return ConfigEntry(("mcp_servers", SERVER_NAME), entry, built_ins.CODEX, built_ins.CODEX_OVERRIDES)


def _gemini(to: Endpoint) -> ConfigEntry:
    return ConfigEntry(("mcpServers", SERVER_NAME), _gemini_server(to), built_ins.GEMINI)


def _qwen(to: Endpoint) -> ConfigEntry:
    return ConfigEntry(("mcpServers", SERVER_NAME), _gemini_server(to), built_ins.QWEN)


def _gemini_server(to: Endpoint) -> dict[str, Any]:
    return {**_bridge(to, to.token), "timeout": to.limit_s * 1000, "trust": True}


def _opencode(to: Endpoint) -> ConfigEntry:
    start = _bridge(to, f"{{env:{TOKEN_VARIABLE}}}")
    entry = {
        "type": "local",
        "command": [start["command"], *start["args"]],
        "environment": start["env"],
        "timeout": to.limit_s * 1000,
        "enabled": True,
    }
    return ConfigEntry(("mcp", SERVER_NAME), entry, built_ins.OPENCODE, built_ins.OPENCODE_OVERRIDES)


def _kimi(to: Endpoint) -> ConfigEntry:
    return ConfigEntry(("mcpServers", SERVER_NAME), {**_bridge(to, to.token), "toolTimeoutMs": to.limit_s * 1000})


def _cursor(to: Endpoint) -> ConfigEntry:
    return ConfigEntry(
        ("mcpServers", SERVER_NAME), {"url": to.url, "headers": to.headers(f"${{env:{TOKEN_VARIABLE}}}")}
    )


def _vscode(to: Endpoint) -> ConfigEntry:
    asked = {"type": "promptString", "id": "codesdk-token", "description": "CodeSDK session token", "password": True}
    entry = {"type": "http", "url": to.url, "headers": to.headers("${input:codesdk-token}")}
    return ConfigEntry(("servers", SERVER_NAME), entry, (Setting(("inputs",), [asked], add=True),))


def _generic(to: Endpoint) -> ConfigEntry:
    return ConfigEntry(("mcpServers", SERVER_NAME), _bridge(to, to.token))


_EXPORT = f"Start it with {TOKEN_VARIABLE} in its environment; the file does not hold the token."
_NO_LIMIT = (
    "It has no known setting for the timeout of a call; collect_result returns the result of a call that takes longer."
)

CLIENTS: dict[ClientKind, ClientSpec] = {
    ClientKind.CLAUDE: ClientSpec(
        "Claude Code",
        lambda _home, project: project / ".mcp.json",
        _claude,
        notes=(
            _EXPORT,
            "It asks once whether it may trust a project's folder; `claude mcp list` shows whether that is pending.",
        ),
        second=SecondFile(".claude/settings.local.json", built_ins.CLAUDE),
    ),
    ClientKind.CODEX: ClientSpec(
        "Codex",
        lambda home, _project: home / ".codex" / "config.toml",
        _codex,
        toml=True,
        notes=(_EXPORT,),
    ),
    ClientKind.GEMINI: ClientSpec(
        "Gemini CLI",
        lambda home, _project: home / ".gemini" / "settings.json",
        _gemini,
        holds_token=True,
        notes=("It uses no servers in a folder that it does not trust; `gemini mcp list` shows it.",),
    ),
    ClientKind.OPENCODE: ClientSpec(
        "OpenCode",
        lambda home, _project: home / ".config" / "opencode" / "opencode.json",
        _opencode,
        notes=(_EXPORT,),
    ),
    ClientKind.QWEN: ClientSpec(
        "Qwen Code",
        lambda home, _project: home / ".qwen" / "settings.json",
        _qwen,
        holds_token=True,
    ),
    ClientKind.KIMI: ClientSpec(
        "Kimi Code",
        lambda home, _project: home / ".kimi-code" / "mcp.json",
        _kimi,
        holds_token=True,
        second=SecondFile("config.toml", built_ins.KIMI, toml=True),
    ),
    ClientKind.CURSOR: ClientSpec(
        "Cursor",
        lambda home, _project: home / ".cursor" / "mcp.json",
        _cursor,
        stays_on=built_ins.CURSOR,
        notes=(_EXPORT, _NO_LIMIT),
    ),
    ClientKind.VSCODE: ClientSpec(
        "VS Code",
        lambda _home, project: project / ".vscode" / "mcp.json",
        _vscode,
        stays_on=built_ins.VSCODE,
        notes=("It asks for the token when the server starts.", _NO_LIMIT),
    ),
    ClientKind.GENERIC: ClientSpec(
        "a client that starts its servers as programs",
        lambda _home, project: project / "mcp.json",
        _generic,
        holds_token=True,
        stays_on=built_ins.GENERIC,
        notes=("Set its timeout of a call to at least {limit_s} s, if it has one.",),
    ),
}


def as_json(piece: ConfigEntry) -> str:
    """Format what we write as a JSON file."""
    found: dict[str, Any] = {}
    for setting in (Setting(piece.path, piece.entry), *piece.more):
        inner = found
        for key in setting.path[:-1]:
            inner = inner.setdefault(key, {})
        inner[setting.path[-1]] = setting.value
    return json.dumps(found, indent=2) + "\n"


def as_toml(piece: ConfigEntry) -> str:
    """Format what we write as a TOML file: values without a table first, then the tables. JSON literals are valid in TOML."""
    tables: dict[tuple[str, ...], list[str]] = {}
    for setting in piece.more:
        tables.setdefault(setting.path[:-1], []).append(toml_line(setting.path[-1], setting.value))
    if isinstance(piece.entry, dict):
        tables[piece.path] = [toml_line(key, value) for key, value in piece.entry.items()]
    else:
        tables.setdefault(piece.path[:-1], []).append(toml_line(piece.path[-1], piece.entry))
    texts = ("\n".join([f"[{'.'.join(path)}]", *lines] if path else lines) for path, lines in tables.items())
    return "\n\n".join(texts) + "\n"


def toml_line(key: str, value: Any) -> str:
    """Format one key of a table, on one line."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(name)} = {json.dumps(each)}" for name, each in value.items())
        return f"{key} = {{ {inner} }}"
    return f"{key} = {json.dumps(value)}"
