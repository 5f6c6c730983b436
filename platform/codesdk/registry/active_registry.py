"""The tools in force: manifests are read again when their files change, whole or not at all."""

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
"""Why tools of these may not be called, by dotted name."""


class RegistryProvider(Protocol):
    """Who knows which tools a tenant has now. A `Registry` is one itself: the same for everybody, for ever."""

    def of(self, tenant: str) -> Registry:
        """The tools of a tenant: a value that does not change."""
        ...


class SharedToolNames(Collection[str]):
    """The names of the shared tools as they are now, for whoever checks policy files later."""

    def __init__(self, active: ActiveRegistry) -> None:
        self._active = active

    def __contains__(self, name: object) -> bool:
        """Whether there is such a tool."""
        return name in self._active.shared.names()

    def __iter__(self) -> Iterator[str]:
        """By name."""
        return iter(sorted(self._active.shared.names()))

    def __len__(self) -> int:
        """How many."""
        return len(self._active.shared.names())


class ActiveRegistry:
    """The shared tools, and for each tenant with a directory of its own its tools on top. Safe to use from any thread."""

    def __init__(self, directory: Path, *, tenants: Path | None = None, profiles: ProfileBounds | None = None) -> None:
        """`tenants`: has a directory for each tenant with tools of its own, by its id; `profiles`: what manifests may name.

        Raises:
            ManifestInvalid: a manifest cannot be used, or a directory is not there; nothing starts with half its tools.
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
        """The tools of a tenant now."""
        return self._tenants.get(tenant, self.shared)

    def names(self) -> Collection[str]:
        """The names of the shared tools, at any later time too."""
        return SharedToolNames(self)

    def problems(self) -> dict[str, ManifestInvalid]:
        """What is wrong with files that are therefore not in force: `shared`, `tenants` or the tenant's id, and why."""
        return dict(self._problems)

    def set_withheld_lookup(self, withheld: WithheldLookup) -> None:
        """Ask this, at every look, which tools may not be called because their servers have changed them."""
        self._withheld = withheld
        self.refresh()

    def refresh(self) -> None:
        """Look at all files once. What cannot be used leaves the last good tools of its layer in force."""
        changed = self._refresh_shared()
        changed = self._refresh_withheld() or changed
        # A tenant's tools stand on the shared ones: where those changed, all are put together anew.
        self._refresh_tenants(rebuild=changed)

    def watch(self) -> None:
        """Look again and again, on a thread of its own, until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Stop looking."""
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
        # Files that changed while they were read are read once more at the next look.
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
            if (
                rebuild
            ):  # its last good ones stand on shared tools that are no more: better none of its own than a shadow
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
    """Cheap, and different where a file was written, added, removed or renamed."""
    found = []
    for path in (*manifest_files(directory), *pins_files(directory), *prompt_files(directory)):
        try:
            status = path.stat()
        except OSError:  # removed between the listing and here: the next look sees it
            continue
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)
