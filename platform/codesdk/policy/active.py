"""The bundles in force: read again when their files change, whole or not at all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from codesdk.documents import Watch
from codesdk.domain.clock import Clock
from codesdk.domain.ids import TenantId
from codesdk.policy.bundle import Bundle, make_bundle, unreadable_bundle
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.layers import SESSION, layered, make_tenant_layer
from codesdk.policy.sessions import SessionLayers
from codesdk.policy.shadow import Candidate
from codesdk.policy.sources import read_sources, read_tests
from codesdk.policy.store import ACTIVE, SHADOW, Pin
from codesdk.policy.version import SHARED, VersionUnknown
from codesdk.policy.versions import Versions
from codesdk.storage.database import StorageUnavailable

_log = logging.getLogger(__name__)

KEPT = 256
"""Layered bundles of one process that are kept ready: of tenants and of sessions with rules of their own."""
Stamp = tuple[tuple[str, int, int], ...]


class Bundles(Protocol):
    """Who knows which bundle decides for a session now."""

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """The bundle in force for the tenant, and on top of it the rules of that hash, which a session was opened with."""
        ...


class OneBundle:
    """The same bundle for everybody, for ever: the fake, and enough for embedding."""

    def __init__(self, bundle: Bundle, sessions: SessionLayers | None = None) -> None:
        self._bundle = bundle
        self._sessions = sessions

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """The one."""
        del tenant
        return on_top(self._bundle, self._sessions, session_rules)


def on_top(upper: Bundle, sessions: SessionLayers | None, session_rules: str | None) -> Bundle:
    """With a session's own rules, where it has any; nothing is allowed where they cannot be had."""
    if session_rules is None:
        return upper
    if sessions is None:
        return unreadable_bundle("This session's own rules are not known here, so nothing is allowed.")
    return layered(upper, sessions.of(session_rules), SESSION)


class Layer:
    """One directory: its last good bundle, and what is wrong with its newest files."""

    def __init__(self, directory: Path, known_tools: Collection[str], *, tenant: bool = False) -> None:
        """Read it.

        Raises:
            PolicyInvalid: it cannot be used, and there is no earlier one.
        """
        self.directory = directory
        self._known_tools = known_tools
        self._make = make_tenant_layer if tenant else make_bundle
        self._stamp = _stamp(directory)
        self.bundle, self._texts = self._load()
        self.problem: PolicyInvalid | None = None

    def look(self) -> bool:
        """Read the files again where they changed; whether another bundle is in force now."""
        stamp = _stamp(self.directory)
        if stamp == self._stamp:
            return False
        try:
            bundle, texts = self._load()
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
        self.bundle, self._texts = bundle, texts
        return changed

    def sources(self) -> dict[str, str]:
        """The texts that the bundle was made from, and those of the tests as they are now.

        Raises:
            PolicyInvalid: one cannot be read.
        """
        return {**self._texts, **read_tests(self.directory)}

    def _load(self) -> tuple[Bundle, dict[str, str]]:
        texts = read_sources(self.directory)
        return self._make(texts, self._known_tools, self.directory), texts


class ActiveBundles:
    """The shared bundle, on top of it that of each tenant which has a directory of its own, and that of a session."""

    def __init__(
        self, shared: Path, known_tools: Collection[str], clock: Clock, *, tenants: Path | None = None
    ) -> None:
        """`tenants`: has one directory for each tenant with rules of its own, named by the tenant's id.

        Raises:
            PolicyInvalid: a bundle cannot be used, or `tenants` is not there; nothing starts with half a policy.
        """
        self._known_tools = known_tools
        self._clock = clock
        self._tenants_dir = tenants
        self._tenants_problem: PolicyInvalid | None = None
        self._sessions: SessionLayers | None = None
        self.shared = Layer(shared, known_tools)
        self.tenants: dict[str, Layer | PolicyInvalid] = {}
        self._made: dict[tuple[str, ...], Bundle] = {}
        self._versions: Versions | None = None
        self._pinned: dict[Pin, Bundle] = {}
        self._pins: dict[Pin, str] = {}
        self._told: dict[str, str] = {}
        """By layer, what the record was told that its files say."""
        self._pin_problems: dict[Pin, PolicyInvalid] = {}
        self._looking = threading.Lock()
        """One look at a time: the watch's, and that of a request which has just changed what is pinned."""
        for name in self._tenant_names():
            self.tenants[name] = Layer(self._directory(name), known_tools, tenant=True)
        self._watch = Watch("the policy's files", self._look_and_tell, thread="codesdk-policy")
        self._looked: Callable[[], None] = lambda: None

    def after_look(self, listener: Callable[[], None]) -> None:
        """Run `listener` after each look of `watch`, on its thread."""
        self._looked = listener

    def hashes(self) -> dict[str, str]:
        """What is in force now: the hash of the `shared` layer, and of each tenant's that can be read, by its id."""
        own = {name: layer.bundle.hash for name, layer in list(self.tenants.items()) if isinstance(layer, Layer)}
        pinned = {pin.layer: hash_ for pin, hash_ in self._pins.items() if pin.role == ACTIVE}
        return {SHARED: self.shared.bundle.hash, **own, **pinned}

    def know_sessions(self, layers: SessionLayers) -> None:
        """From now on sessions can have rules of their own; before, one that has some is denied everything."""
        self._sessions = layers

    def follow(self, versions: Versions) -> None:
        """From now on a version that is pinned is in force in place of its layer's files, and what files say is kept.

        Raises:
            PolicyInvalid, VersionUnknown: a pinned version cannot be used; nothing starts with other rules than those.
            StorageUnavailable: the database does not answer.
        """
        self._versions = versions
        self._look_at_pins(versions)
        for pin, problem in self._pin_problems.items():
            if pin.role == ACTIVE:  # what is only tried decides nothing, and stops nothing
                raise problem
        self._tell(versions)

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """The bundle in force today. A tenant or session whose own rules cannot be read is denied everything."""
        # Each is read once: another may be in force a moment later, and must not be kept under this one's hash.
        own = self._own(tenant)
        return self._whole(self._pinned.get(Pin(SHARED, ACTIVE)) or self.shared.bundle, own, session_rules)

    def tries(self, tenant: str) -> bool:
        """Whether something is tried for the tenant."""
        return Pin(SHARED, SHADOW) in self._pinned or Pin(tenant, SHADOW) in self._pinned

    def candidate(self, tenant: str, session_rules: str | None) -> Candidate | None:
        """What is tried for the tenant: its own candidate, else the shared one."""
        for layer in (tenant, SHARED):
            tried = self._pinned.get(Pin(layer, SHADOW))
            if tried is not None:
                whole = self.with_layer(layer, tried, TenantId(tenant), session_rules)
                return Candidate(layer, self._pins.get(Pin(layer, SHADOW), tried.hash), whole)
        return None

    def with_layer(self, layer: str, bundle: Bundle, tenant: TenantId, session_rules: str | None) -> Bundle:
        """What would be in force for the tenant, were that layer this bundle."""
        if layer != SHARED:
            return self._layered(self._pinned.get(Pin(SHARED, ACTIVE)) or self.shared.bundle, bundle, session_rules)
        return self._whole(bundle, self._own(tenant), session_rules)

    def pinned(self, layer: str) -> str | None:
        """The hash of the version that is in force in place of the layer's files."""
        return self._pins.get(Pin(layer, ACTIVE))

    def files_hash(self, layer: str) -> str | None:
        """What the layer's files say, in force or not."""
        found = self.shared if layer == SHARED else self.tenants.get(layer)
        return found.bundle.hash if isinstance(found, Layer) else None

    def _own(self, tenant: str) -> Bundle | PolicyInvalid | None:
        pinned = self._pinned.get(Pin(tenant, ACTIVE))
        if pinned is not None:
            return pinned
        layer = self.tenants.get(tenant)
        return layer.bundle if isinstance(layer, Layer) else layer

    def _whole(self, shared: Bundle, own: Bundle | PolicyInvalid | None, session_rules: str | None) -> Bundle:
        if isinstance(own, PolicyInvalid):
            return unreadable_bundle(f"This tenant's policy cannot be read, so nothing is allowed: {own}")
        return self._layered(shared, own, session_rules)

    def _layered(self, shared: Bundle, own: Bundle | None, session_rules: str | None) -> Bundle:
        day = self._clock.now().date()
        key = (shared.hash, own.hash if own else "", session_rules or "", day.isoformat())
        made = self._made.get(key)
        if made is None:
            whole = layered(shared.on(day), own) if own else shared
            made = on_top(whole.on(day), self._sessions, session_rules).on(day)
            if len(self._made) >= KEPT + 2 * len(self.tenants):
                self._made.pop(next(iter(self._made)), None)
            self._made[key] = made
        return made

    def problems(self) -> dict[str, PolicyInvalid]:
        """What is wrong with files that are therefore not in force: `shared`, `tenants` or the tenant's id, and why."""
        found = {"shared": self.shared.problem} if self.shared.problem else {}
        if self._tenants_problem is not None:
            found["tenants"] = self._tenants_problem
        found |= {pin.layer: problem for pin, problem in sorted(self._pin_problems.items(), reverse=True)}
        for name, layer in list(self.tenants.items()):  # the watch adds and removes
            problem = layer if isinstance(layer, PolicyInvalid) else layer.problem
            if problem is not None:
                found[name] = problem
        return found

    def look(self) -> None:
        """Look at every layer once; new tenants' directories are taken up, removed ones let go.

        Where the directory of all tenants is gone or cannot be read, every tenant keeps its last good rules.
        """
        with self._looking:
            self.shared.look()
            self._look_at_tenants()
            if self._versions is not None:
                try:
                    self._look_at_pins(self._versions)
                    self._tell(self._versions)
                except StorageUnavailable as fault:
                    _log.warning("which versions of policy are pinned is not known, those known stay: %s", fault)

    def _look_at_pins(self, versions: Versions) -> None:
        pins = versions.pins()
        if pins == self._pins:
            return
        made = dict(self._pinned)
        problems: dict[Pin, PolicyInvalid] = {}
        for pin in set(made) - set(pins):
            del made[pin]
        used: dict[Pin, str] = {}
        for pin, bundle_hash in pins.items():
            if pin in made and self._pins.get(pin) == bundle_hash:
                used[pin] = bundle_hash
                continue
            try:
                made[pin] = versions.bundle(pin.layer, bundle_hash)
            except (PolicyInvalid, VersionUnknown) as error:  # tried again at each look: a tool may come back
                unusable = error if isinstance(error, PolicyInvalid) else PolicyInvalid(bundle_hash, 1, 1, str(error))
                problems[pin] = unusable
                if str(unusable) != str(self._pin_problems.get(pin)):
                    _log.error("the %s version %s of %s is not used: %s", pin.role, bundle_hash, pin.layer, error)
            else:
                used[pin] = bundle_hash
                _log.info("the %s policy of %s is version %s now", pin.role, pin.layer, bundle_hash)
        self._pinned, self._pins, self._pin_problems = made, used, problems

    def _tell(self, versions: Versions) -> None:
        """Keep what files say, so that it can be gone back to."""
        layers = {
            SHARED: self.shared,
            **{name: layer for name, layer in self.tenants.items() if isinstance(layer, Layer)},
        }
        for name, layer in layers.items():
            if self._told.get(name) == layer.bundle.hash or layer.problem is not None:
                continue
            bundle = layer.bundle
            try:
                sources = layer.sources()
            except PolicyInvalid:  # changed since: the next look reads it
                continue
            versions.took_up(name, bundle, sources)
            self._told[name] = bundle.hash
        for gone in set(self._told) - set(self.tenants) - {SHARED}:
            versions.took_away(gone)
            del self._told[gone]

    def _look_at_tenants(self) -> None:
        try:
            names = self._tenant_names()
        except PolicyInvalid as error:
            if str(error) != str(self._tenants_problem):
                _log.error("every tenant keeps its last good rules: %s", error)
            self._tenants_problem = error
            return
        self._tenants_problem = None
        for gone in set(self.tenants) - names:
            _log.warning("%s has no rules of its own any more: its directory was removed", gone)
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
        self._watch.start()

    def close(self) -> None:
        """Stop looking."""
        self._watch.close()

    def _look_and_tell(self) -> None:
        self.look()
        self._looked()

    def _tenant_names(self) -> set[str]:
        """The tenants that have a directory.

        Raises:
            PolicyInvalid: the directory of all of them is not there, or cannot be read.
        """
        directory = self._tenants_dir
        if directory is None:
            return set()
        try:
            return {path.name for path in directory.iterdir() if path.is_dir() and not path.name.startswith(".")}
        except OSError as error:
            said = f"The directory of the tenants' policies cannot be read: {error.strerror or error}."
            raise PolicyInvalid(str(directory), 1, 1, said) from error

    def _directory(self, name: str) -> Path:
        return (self._tenants_dir or Path()) / name


def _stamp(directory: Path) -> Stamp:
    """Cheap, and different where a file was written, added, removed or renamed."""
    found = []
    try:
        paths = sorted([*directory.glob("*.yaml"), *directory.glob("*.yml")]) if directory.is_dir() else []
    except OSError:  # what is wrong is said where the files are read
        return ()
    for path in paths:
        try:
            status = path.stat()
        except OSError:  # removed between the listing and here: the next look sees it
            continue
        found.append((path.name, status.st_mtime_ns, status.st_size))
    return tuple(found)
