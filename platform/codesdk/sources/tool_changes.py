"""Tools that MCP servers changed since they were accepted: recorded by the worker that notices, read by every process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from codesdk.domain.clock import Clock
from codesdk.registry import Registry, Source, SourceCall
from codesdk.registry.pins import OfferedTool
from codesdk.sources import store
from codesdk.sources.store import ToolChange
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer


class ToolListing:
    """The tools that a server listed."""

    def __init__(self, server: str, tools: tuple[OfferedTool, ...], unusable: dict[str, str]) -> None:
        self.server = server
        """The server's name and version, from its handshake."""
        self.tools = tools
        self.unusable = unusable
        """Reasons why tools can't be used, by name."""

    def hashes(self) -> dict[str, str]:
        """Tool hashes by name."""
        return {tool.name: tool.hash for tool in self.tools}


_log = logging.getLogger(__name__)


def detect_changes(source: Source, listing: ToolListing) -> dict[str, ToolChange]:
    """The accepted tools that a server no longer offers, or offers differently. Pure."""
    now = listing.hashes()
    return {
        name: ToolChange(pinned, now.get(name, "")) for name, pinned in source.pinned.items() if now.get(name) != pinned
    }


def describe_change(seen: str) -> str:
    """Why a tool is withheld. `seen`: its current hash, empty if removed."""
    return "its server has changed its description since it was accepted" if seen else "its server no longer offers it"


class ToolChanges:
    """Records and reads changes. Safe to use from any thread."""

    def __init__(self, database: Database, writer: Writer, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[str, dict[str, ToolChange]] = {}

    def note(self, source: Source, listing: ToolListing) -> dict[str, ToolChange]:
        """Record a server's changes, if they are new, and return them."""
        found = detect_changes(source, listing)
        with self._lock:
            if self._written.get(source.name) == found:
                return found
            now = self._clock.now().timestamp()
            self._writer.run(lambda unit: store.replace_changes(unit.connection, source.name, found, now))
            self._written[source.name] = found
        for name, seen in found.items():
            _log.warning(
                "withholding the tool %s of the MCP server %s: %s", name, source.name, describe_change(seen.seen)
            )
        return found

    def withheld(self, registry: Registry) -> Mapping[str, str]:
        """Reasons why tools of this registry are withheld, by dotted name. Changes accepted since then don't count."""
        with self._database.read() as connection:
            known = store.list_changes(connection)
        found: dict[str, str] = {}
        for tool in registry.tools() if known else ():
            if not isinstance(tool.runs, SourceCall) or tool.runs.source not in registry.sources:
                continue
            seen = known.get((tool.runs.source, tool.runs.tool))
            if seen is not None and seen.pinned == registry.sources[tool.runs.source].pinned.get(tool.runs.tool):
                found[tool.name] = describe_change(seen.seen)
        return found
