"""The active tools: reloaded when manifests change, as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from codesdk.documents import FilePoller
from codesdk.errors import Fault
from codesdk.registry.faults import ManifestInvalid
from codesdk.registry.prompts import prompt_files
from codesdk.registry.registry import ProfileBounds, Registry, manifest_files, pins_files
from codesdk.registry.tenant_tools import tenant_directories, tenant_registry

_log = logging.getLogger(__name__)

Fingerprint = tuple[tuple[str, int, int], ...]
WithheldLookup = Callable[[Registry], Mapping[str, str]]
"""Returns why tools are withheld, by dotted name."""


class RegistryProvider(Protocol):
    """Finds the tools of a tenant. A `Registry` is a provider of the same tools for all tenants."""

    def of(self, tenant: str) -> Registry:
        """Return the tools of a tenant, as an immutable registry."""
        ...


class SharedToolNames(Collection[str]):
    """A live view of the shared tools' names, for checking policy files."""

    def __init__(self, active: ActiveRegistry) -> None:
        self._active = active

    def __contains__(self, name: object) -> bool:
        """Return whether there is such a tool."""
        return name in self._active.shared.names()

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in order."""
        return iter(sorted(self._active.shared.names()))

    def __len__(self) -> int:
        """Return the number of tools."""
        return len(self._active.shared.names())


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
        self._directory = directory
        self._tenants_dir = tenants
        self._profiles = profiles
        self._fingerprints: dict[str, Fingerprint] = {}
        self._problems: dict[str, ManifestInvalid] = {}
        self._fingerprints[""] = _fingerprint(directory)
        self._loaded = Registry.load(directory, profiles)
        self._withheld: WithheldLookup = lambda _registry: {}
        self.shared = self._loaded
        self._tenants: dict[str, Registry] = {}
        for name, path in (tenant_directories(tenants) if tenants is not None else {}).items():
            self._fingerprints[name] = _fingerprint(path)
            self._tenants[name] = tenant_registry(path, self.shared, self._profiles)
        self._watch = FilePoller("the tools' files", self.refresh, thread="codesdk-registry")

    def of(self, tenant: str) -> Registry:
        """Return the current tools of a tenant."""
        return self._tenants.get(tenant, self.shared)

    def names(self) -> Collection[str]:
        """Return a live view of the shared tools' names."""
        return SharedToolNames(self)

    def problems(self) -> dict[str, ManifestInvalid]:
        """Return problems that keep files from being used, by `shared`, `tenants` or the tenant's id."""
        return dict(self._problems)

    def set_withheld_lookup(self, withheld: WithheldLookup) -> None:
        """Set the lookup for tools that are withheld because their servers changed them. It runs at every refresh."""
        self._withheld = withheld
        self.refresh()

    def refresh(self) -> None:
        """Refresh all tools. A layer with invalid files keeps its last valid tools."""
        changed = self._refresh_shared()
        changed = self._refresh_withheld() or changed
        # Tenant registries extend the shared one, so a change to it rebuilds them all.
        self._refresh_tenants(rebuild=changed)

    def watch(self) -> None:
        """Start polling for changes, until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Stop polling."""
        self._watch.close()

    def _refresh_shared(self) -> bool:
        stamp = _fingerprint(self._directory)
        if stamp == self._fingerprints[""]:
            return False
        try:
            found = Registry.load(self._directory, self._profiles)
        except ManifestInvalid as error:
            self._report_problem("shared", error, "the changed tools are not used, the last good ones stay")
            return False
        # Files that changed while being read are read again at the next poll.
        self._fingerprints[""] = stamp
        self._problems.pop("shared", None)
        changed = found.hash != self._loaded.hash
        if changed:
            _log.info("tools %s are in force now, they were %s", found.hash, self._loaded.hash)
            self._loaded = self.shared = found
        return changed

    def _refresh_withheld(self) -> bool:
        try:
            reasons = self._withheld(self._loaded)
        except Fault as fault:
            _log.warning("what servers have changed is not known now: %s", fault)
            return False
        found = self._loaded.with_withheld(reasons) if reasons else self._loaded
        changed = found.hash != self.shared.hash
        self.shared = found
        return changed

    def _refresh_tenants(self, *, rebuild: bool) -> None:
        if self._tenants_dir is None:
            return
        try:
            directories = tenant_directories(self._tenants_dir)
        except ManifestInvalid as error:
            self._report_problem("tenants", error, "every tenant keeps its last good tools")
            directories = {}
            if not rebuild:
                return
        else:
            self._problems.pop("tenants", None)
        for name, path in directories.items():
            self._refresh_tenant(name, path, rebuild=rebuild)
        if "tenants" not in self._problems:
            for name in set(self._fingerprints) - {""} - set(directories):
                self._drop_tenant(name)

    def _refresh_tenant(self, name: str, path: Path, *, rebuild: bool) -> None:
        stamp = _fingerprint(path)
        if stamp == self._fingerprints.get(name) and not rebuild:
            return
        try:
            self._tenants[name] = tenant_registry(path, self.shared, self._profiles)
        except (ManifestInvalid, OSError) as error:
            wrong = error if isinstance(error, ManifestInvalid) else ManifestInvalid(str(path), 1, 1, str(error))
            self._report_problem(name, wrong, f"the changed tools of {name} are not used")
            if rebuild:  # the last valid one extends an outdated shared registry, so drop it
                self._tenants.pop(name, None)
        else:
            self._fingerprints[name] = stamp
            self._problems.pop(name, None)

    def _drop_tenant(self, name: str) -> None:
        _log.warning("%s has no tools of its own any more: its directory was removed", name)
        del self._fingerprints[name]
        self._problems.pop(name, None)
        self._tenants.pop(name, None)

    def _report_problem(self, layer: str, error: ManifestInvalid, what: str) -> None:
        if str(error) != str(self._problems.get(layer)):
            _log.error("%s: %s", what, error)
        self._problems[layer] = error


def _fingerprint(directory: Path) -> Fingerprint:
    """Return a cheap fingerprint that changes if a file is written, added, removed or renamed."""
    found = []
    for path in (*manifest_files(directory), *pins_files(directory), *prompt_files(directory)):
        try:
            status = path.stat()
        except OSError:  # removed since the listing: the next poll notices
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)
