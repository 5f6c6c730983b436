"""The bundles in force: read again when their files change, whole or not at all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Protocol

from codesdk.domain.clock import Clock
from codesdk.domain.ids import TenantId
from codesdk.policy.bundle import Bundle, load_bundle, unreadable_bundle
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.layers import layered, load_tenant_layer

_log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between looks at the files' names, sizes and times."""

Stamp = tuple[tuple[str, int, int], ...]


class Bundles(Protocol):
    """Who knows which bundle decides for a tenant now."""

    def of(self, tenant: TenantId) -> Bundle:
        """The bundle in force for the tenant."""
        ...


class OneBundle:
    """The same bundle for everybody, for ever: the fake, and enough for embedding."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle = bundle

    def of(self, tenant: TenantId) -> Bundle:
        """The one."""
        del tenant
        return self._bundle


class Layer:
    """One directory: its last good bundle, and what is wrong with its newest files."""

    def __init__(self, directory: Path, known_tools: Collection[str], *, tenant: bool = False) -> None:
        """Read it.

        Raises:
            PolicyInvalid: it cannot be used, and there is no earlier one.
        """
        self.directory = directory
        self._known_tools = known_tools
        self._load = load_tenant_layer if tenant else load_bundle
        self._stamp = _stamp(directory)
        self.bundle = self._load(directory, known_tools)
        self.problem: PolicyInvalid | None = None

    def look(self) -> bool:
        """Read the files again where they changed; whether another bundle is in force now."""
        stamp = _stamp(self.directory)
        if stamp == self._stamp:
            return False
        try:
            bundle = self._load(self.directory, self._known_tools)
        except PolicyInvalid as error:
            if str(error) != str(self.problem):
                _log.error("the changed policy is not used, the last good one stays: %s", error)
            self.problem = error
            return False
        # Files that changed while they were read are read once more at the next look.
        self._stamp, self.problem = stamp, None
        changed = bundle.hash != self.bundle.hash
        if changed:
            _log.info("policy %s is in force now, it was %s", bundle.hash, self.bundle.hash)
        self.bundle = bundle
        return changed


class ActiveBundles:
    """The shared bundle, and on top of it that of each tenant which has a directory of its own."""

    def __init__(
        self, shared: Path, known_tools: Collection[str], clock: Clock, *, tenants: Path | None = None
    ) -> None:
        """`tenants`: has one directory for each tenant with rules of its own, named by the tenant's id.

        Raises:
            PolicyInvalid: a bundle cannot be used; nothing starts with half a policy.
        """
        self._known_tools = known_tools
        self._clock = clock
        self._tenants_dir = tenants
        self.shared = Layer(shared, known_tools)
        self.tenants: dict[str, Layer | PolicyInvalid] = {}
        self._made: dict[tuple[str, ...], Bundle] = {}
        for name in self._tenant_names():
            self.tenants[name] = Layer(self._directory(name), known_tools, tenant=True)
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def of(self, tenant: TenantId) -> Bundle:
        """The bundle in force for the tenant today. A tenant whose only bundle cannot be read is denied everything."""
        layer = self.tenants.get(tenant)
        if isinstance(layer, PolicyInvalid):
            return unreadable_bundle(f"This tenant's policy cannot be read, so nothing is allowed: {layer}")
        day = self._clock.now().date()
        # Each is read once: another may be in force a moment later, and must not be kept under this one's hash.
        shared, own = self.shared.bundle, layer.bundle if layer else None
        key = (shared.hash, own.hash if own else "", day.isoformat())
        made = self._made.get(key)
        if made is None:
            whole = layered(shared.on(day), own) if own else shared
            made = whole.on(day)
            if len(self._made) >= 2 * len(self.tenants) + 8:  # yesterday's, and those of bundles that were replaced
                self._made.clear()
            self._made[key] = made
        return made

    def problems(self) -> dict[str, PolicyInvalid]:
        """What is wrong with files that are therefore not in force: `shared` or the tenant's id, and why."""
        found = {"shared": self.shared.problem} if self.shared.problem else {}
        for name, layer in list(self.tenants.items()):  # the watch adds and removes
            problem = layer if isinstance(layer, PolicyInvalid) else layer.problem
            if problem is not None:
                found[name] = problem
        return found

    def look(self) -> None:
        """Look at every layer once; new tenants' directories are taken up, removed ones let go."""
        self.shared.look()
        names = self._tenant_names()
        for gone in set(self.tenants) - names:
            del self.tenants[gone]
        for name in names:
            layer = self.tenants.get(name)
            if isinstance(layer, Layer):
                layer.look()
                continue
            try:
                self.tenants[name] = Layer(self._directory(name), self._known_tools, tenant=True)
            except PolicyInvalid as error:
                if str(error) != str(layer):
                    _log.error("the policy of %s cannot be read, and it has no earlier one: %s", name, error)
                self.tenants[name] = error

    def watch(self) -> None:
        """Look again and again, on a thread of its own, until `close`."""
        self._thread = threading.Thread(target=self._watch, name="codesdk-policy", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=5.0)

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self.look()
            except Exception:  # noqa: BLE001 (a defect here must not end the watch: the last good bundles stay)
                _log.exception("looking at the policy's files failed")

    def _tenant_names(self) -> set[str]:
        directory = self._tenants_dir
        if directory is None or not directory.is_dir():
            return set()
        return {path.name for path in directory.iterdir() if path.is_dir() and not path.name.startswith(".")}

    def _directory(self, name: str) -> Path:
        return (self._tenants_dir or Path()) / name


def _stamp(directory: Path) -> Stamp:
    """Cheap, and different where a file was written, added, removed or renamed."""
    found = []
    for path in sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")]) if directory.is_dir() else []:
        try:
            status = path.stat()
        except OSError:  # removed between the listing and here: the next look sees it
            continue
        found.append((path.name, status.st_mtime_ns, status.st_size))
    return tuple(found)
