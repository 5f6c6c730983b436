"""The active tools: reloaded when manifests change, as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from codesdk.documents import FileInvalid, FilePoller, ReloadedFiles, ReloadedFolders
from codesdk.errors import Fault
from codesdk.registry.faults import ManifestInvalid
from codesdk.registry.prompts import prompt_files
from codesdk.registry.registry import ProfileBounds, Registry, manifest_files, pins_files
from codesdk.registry.tenant_tools import tenant_registry
from codesdk.registry.tool import Tool

_log = logging.getLogger(__name__)

WithheldLookup = Callable[[Registry], Mapping[str, str]]
"""Returns why tools are withheld, by dotted name."""


class RegistryProvider(Protocol):
    """Finds the tools of a tenant. A `Registry` is a provider of the same tools for all tenants."""

    def of(self, tenant: str) -> Registry:
        """Return the tools of a tenant, as an immutable registry."""
        ...


class KnownTools(Mapping[str, Tool]):
    """A live view of the tools that policy files can name: the shared tools, and those of one tenant or of all."""

    def __init__(self, active: ActiveRegistry, tenant: str | None = None) -> None:
        """`tenant`: whose rules may name them; None for the shared rules, which may name every tenant's."""
        self._active = active
        self._tenant = tenant
        self._made: tuple[tuple[Registry, ...], dict[str, Tool]] = ((), {})

    def of_tenant(self, tenant: str) -> KnownTools:
        """Return the view for a tenant's own rules."""
        return KnownTools(self._active, tenant)

    def __getitem__(self, name: str) -> Tool:
        """Return the tool with that dotted name."""
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in order."""
        return iter(self._now())

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self._now())

    def _now(self) -> dict[str, Tool]:
        registries = self._active.registries(self._tenant)
        known, tools = self._made
        if len(known) != len(registries) or any(one is not other for one, other in zip(known, registries, strict=True)):
            found = {tool.name: tool for registry in reversed(registries) for tool in registry.tools()}
            tools = dict(sorted(found.items()))
            self._made = registries, tools
        return tools


class ActiveRegistry:
    """The shared tools, plus each tenant's own. Safe to use from any thread."""

    def __init__(self, directory: Path, *, tenants: Path | None = None, profiles: ProfileBounds | None = None) -> None:
        """Load all tools.

        Args:
            directory: the shared tools.
            tenants: directory with one subdirectory for each tenant with its own tools, named by the tenant's id.
            profiles: known profiles.

        Raises:
            ManifestInvalid: a manifest is invalid, or a directory does not exist.
        """
        self._profiles = profiles
        files = partial(_files, directory)
        self._files = ReloadedFiles("shared tools", files, lambda: Registry.load(directory, profiles))
        self._withheld: WithheldLookup = lambda _registry: {}
        self.shared = self._files.value
        self._tenants = ReloadedFolders(tenants, "tenants' tools", self._tenant_files, ManifestInvalid)
        self._watch = FilePoller("the tools' files", self.refresh, thread="codesdk-registry")

    def of(self, tenant: str) -> Registry:
        """Return the current tools of a tenant."""
        own = self._tenants.layers.get(tenant)
        return own.value if isinstance(own, ReloadedFiles) else self.shared

    def registries(self, tenant: str | None = None) -> tuple[Registry, ...]:
        """Return the current tools of one tenant; with None the shared ones, and those of every tenant."""
        if tenant is not None:
            return (self.of(tenant),)
        return (self.shared, *(layer.value for layer in self._tenants.valid().values()))

    def known_tools(self) -> KnownTools:
        """Return a live view of the tools that policy files can name."""
        return KnownTools(self)

    def problems(self) -> dict[str, FileInvalid]:
        """Return problems that keep files from being used, by `shared`, `tenants` or the tenant's id."""
        found = {"shared": self._files.problem} if self._files.problem else {}
        return found | self._tenants.problems("tenants")

    def set_withheld_lookup(self, withheld: WithheldLookup) -> None:
        """Set the lookup for tools that are withheld because their servers changed them. It runs at every refresh."""
        self._withheld = withheld
        self.refresh()

    def refresh(self) -> None:
        """Refresh all tools. A layer with invalid files keeps its last valid tools."""
        self._files.refresh()
        # Tenant registries extend the shared one, so a change to it rebuilds them all.
        self._tenants.refresh(force=self._refresh_withheld())

    def watch(self) -> None:
        """Start polling for changes, until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Stop polling."""
        self._watch.close()

    def _tenant_files(self, directory: Path) -> ReloadedFiles[Registry]:
        def load() -> Registry:
            try:
                return tenant_registry(directory, self.shared, self._profiles)
            except OSError as error:  # one tenant's unreadable files must not hold up the others
                raise ManifestInvalid(str(directory), 1, 1, str(error)) from error

        return ReloadedFiles(f"tools of {directory.name}", partial(_files, directory), load)

    def _refresh_withheld(self) -> bool:
        """Withhold what servers have changed since it was accepted. Returns whether the shared tools changed."""
        loaded, before = self._files.value, self.shared
        try:
            reasons = self._withheld(loaded)
        except Fault as fault:
            _log.warning("cannot read which tools their servers have changed: %s", fault)
            return False
        self.shared = loaded.with_withheld(reasons) if reasons else loaded
        return self.shared.hash != before.hash


def _files(directory: Path) -> list[Path]:
    return [*manifest_files(directory), *pins_files(directory), *prompt_files(directory)]
