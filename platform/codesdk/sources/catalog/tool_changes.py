"""What servers have changed since it was accepted: written down by the worker that saw it, read by every process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping

from codesdk.domain.clock import Clock
from codesdk.registry import Registry, Source, SourceCall
from codesdk.sources import store
from codesdk.sources.catalog.tool_listing import ToolListing
from codesdk.sources.store import ToolChange
from codesdk.storage.database import Database
from codesdk.storage.writer import Writer

_log = logging.getLogger(__name__)


def detect_changes(source: Source, listing: ToolListing) -> dict[str, ToolChange]:
    """The accepted tools that a server does not offer as they were accepted. Pure."""
    now = listing.hashes()
    return {
        name: ToolChange(pinned, now.get(name, "")) for name, pinned in source.pinned.items() if now.get(name) != pinned
    }


def describe_change(seen: str) -> str:
    """Why a tool is taken away, in words."""
    return "its server describes it otherwise than it was accepted" if seen else "its server does not offer it any more"


class ToolChanges:
    """Safe to use from any thread."""

    def __init__(self, database: Database, writer: Writer, clock: Clock) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._lock = threading.Lock()
        self._written: dict[str, dict[str, ToolChange]] = {}

    def note(self, source: Source, listing: ToolListing) -> dict[str, ToolChange]:
        """Write down what a server has changed; nothing is written where that was known."""
        found = detect_changes(source, listing)
        with self._lock:
            if self._written.get(source.name) == found:
                return found
            now = self._clock.now().timestamp()
            self._writer.run(lambda unit: store.replace_changes(unit.connection, source.name, found, now))
            self._written[source.name] = found
        for name, seen in found.items():
            _log.warning(
                "the tool %s of the MCP server %s is taken away: %s", name, source.name, describe_change(seen.seen)
            )
        return found

    def withheld(self, registry: Registry) -> Mapping[str, str]:
        """Why tools of this registry may not be called, by dotted name. What was accepted since counts no more."""
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
