"""The files of one client: what we write into each, merged or alone, and a copy for `--check`."""

from __future__ import annotations

import json
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codesdk.cli.client_config import config_file, jsonc
from codesdk.cli.client_config.clients import ClientSpec, Endpoint, as_json, as_toml
from codesdk.cli.client_config.merge import has_entry, merge_json, merge_toml
from codesdk.cli.client_config.settings import SERVER_NAME, ConfigEntry


@dataclass(frozen=True)
class ClientFile:
    """One file of a client, with our part of it."""

    place: Path
    piece: ConfigEntry
    toml: bool
    private: bool
    """Whether the file will hold the token."""

    @property
    def text(self) -> str:
        """Our part alone."""
        return as_toml(self.piece) if self.toml else as_json(self.piece)

    def merged(self, before: str) -> str:
        """The text with our part merged in.

        Raises:
            NotMergeable: that can't be done safely.
        """
        return (merge_toml if self.toml else merge_json)(before, self.piece)

    def write(self) -> Path | None:
        """Merge our part into the file. Returns the path of a new backup; None if there was nothing to back up.

        Raises:
            NotMergeable, CannotWrite: the file is unchanged.
        """
        before = config_file.read(self.place)
        merged = self.merged(before)
        if before == merged:
            return None
        ours = has_entry(before, self.piece, toml=self.toml) if before.strip() else True
        kept = None if ours else config_file.save_backup(self.place, before)
        config_file.replace(self.place, before, merged, private=self.private)
        return kept

    def undo(self) -> str:
        """How to take the file back to the state before our first change."""
        target = self.place.resolve()
        backup = target.with_name(target.name + config_file.BACKUP_SUFFIX)
        if backup.exists():
            return f"mv {shlex.quote(str(backup))} {shlex.quote(str(target))}"
        if config_file.read(target) == self.text:
            return f"rm {shlex.quote(str(target))}"
        settings = (self.piece.path, *(setting.path for setting in self.piece.more))
        return f"take {', '.join('.'.join(path) for path in settings)} out of {target}"


def client_files(client: ClientSpec, place: Path, to: Endpoint) -> list[ClientFile]:
    """Return the client's files. `place`: of the first one."""
    first = ClientFile(place, client.piece(to), client.toml, client.holds_token)
    if client.second is None:
        return [first]
    second = client.second
    return [first, ClientFile(place.parent / second.name, second.piece, second.toml, private=False)]


@dataclass(frozen=True)
class CheckCopy:
    """What a file has, without what would start programs of the user."""

    text: str
    others: tuple[str, ...]
    """Names of MCP servers that it has besides ours, and that must not be started."""


def copy_for_check(text: str, *, toml: bool) -> CheckCopy:
    """Return the text without other MCP servers and without hooks. TOML stays; its servers are only named."""
    found: Any = tomllib.loads(text) if toml else jsonc.read(text)
    if toml:
        servers = found.get("mcp_servers", {})
        return CheckCopy(text, tuple(name for name in servers if name != SERVER_NAME))
    found.pop("hooks", None)
    for key in ("mcpServers", "mcp"):
        if isinstance(servers := found.get(key), dict) and SERVER_NAME in servers:
            found[key] = {SERVER_NAME: servers[SERVER_NAME]}
    return CheckCopy(json.dumps(found, indent=2), ())
