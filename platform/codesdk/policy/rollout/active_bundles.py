"""The bundles in force: read again when their files change, whole or not at all."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from codesdk.documents import FilePoller
from codesdk.domain.clock import Clock
from codesdk.domain.ids import TenantId
from codesdk.policy.bundles.bundle import Bundle, make_bundle, unreadable_bundle
from codesdk.policy.bundles.layers import SESSION, make_tenant_layer, merge_layers
from codesdk.policy.bundles.texts import read_bundle_texts, read_test_texts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.rollout.session_rules import SessionBundleProvider
from codesdk.policy.rollout.shadow import Candidate
from codesdk.policy.rollout.store import ACTIVE, SHADOW, PinKey
from codesdk.policy.rollout.version_models import SHARED, VersionUnknown
from codesdk.policy.rollout.version_service import VersionService
from codesdk.storage.database import StorageUnavailable

_log = logging.getLogger(__name__)

CACHE_SIZE = 256
"""Layered bundles of one process that are kept ready: of tenants and of sessions with rules of their own."""
Fingerprint = tuple[tuple[str, int, int], ...]


class BundleProvider(Protocol):
    """Who knows which bundle decides for a session now."""

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """The bundle in force for the tenant, and on top of it the rules of that hash, which a session was opened with."""
        ...


class FixedBundle:
    """The same bundle for everybody, for ever: the fake, and enough for embedding."""

    def __init__(self, bundle: Bundle, sessions: SessionBundleProvider | None = None) -> None:
        self._bundle = bundle
        self._sessions = sessions

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """The one."""
        del tenant
        return with_session_rules(self._bundle, self._sessions, session_rules)


def with_session_rules(upper: Bundle, sessions: SessionBundleProvider | None, session_rules: str | None) -> Bundle:
    """With a session's own rules, where it has any; nothing is allowed where they cannot be had."""
    if session_rules is None:
        return upper
    if sessions is None:
        return unreadable_bundle("This session's own rules are not known here, so nothing is allowed.")
    return merge_layers(upper, sessions.of(session_rules), SESSION)


class DirectoryLayer:
    """One directory: its last good bundle, and what is wrong with its newest files."""

    def __init__(self, directory: Path, known_tools: Collection[str], *, tenant: bool = False) -> None:
        """Read it.

        Raises:
            PolicyInvalid: it cannot be used, and there is no earlier one.
        """
        self.directory = directory
        self._known_tools = known_tools
        self._make = make_tenant_layer if tenant else make_bundle
        self._fingerprint = _fingerprint(directory)
        self.bundle, self._texts = self._load()
        self.problem: PolicyInvalid | None = None

    def refresh(self) -> bool:
        """Read the files again where they changed; whether another bundle is in force now."""
        stamp = _fingerprint(self.directory)
        if stamp == self._fingerprint:
            return False
        try:
            bundle, texts = self._load()
        except PolicyInvalid as error:
            if str(error) != str(self.problem):
                _log.error("the changed policy is not used, the last good one stays: %s", error)
            self.problem = error
            return False
        # Files that changed while they were read are read once more at the next look.
        self._fingerprint, self.problem = stamp, None
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
        return {**self._texts, **read_test_texts(self.directory)}

    def _load(self) -> tuple[Bundle, dict[str, str]]:
        texts = read_bundle_texts(self.directory)
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
        self._sessions: SessionBundleProvider | None = None
        self.shared = DirectoryLayer(shared, known_tools)
        self.tenants: dict[str, DirectoryLayer | PolicyInvalid] = {}
        self._cache: dict[tuple[str, ...], Bundle] = {}
        self._versions: VersionService | None = None
        self._pinned: dict[PinKey, Bundle] = {}
        self._pins: dict[PinKey, str] = {}
        self._recorded: dict[str, str] = {}
        """By layer, what the record was told that its files say."""
        self._pin_problems: dict[PinKey, PolicyInvalid] = {}
        self._refresh_lock = threading.Lock()
        """One look at a time: the watch's, and that of a request which has just changed what is pinned."""
        for name in self._tenant_names():
            self.tenants[name] = DirectoryLayer(self._directory(name), known_tools, tenant=True)
        self._watch = FilePoller("the policy's files", self._refresh_and_notify, thread="codesdk-policy")
        self._on_refresh: Callable[[], None] = lambda: None

    def on_refresh(self, listener: Callable[[], None]) -> None:
        """Run `listener` after each look of `watch`, on its thread."""
        self._on_refresh = listener

    def hashes(self) -> dict[str, str]:
        """What is in force now: the hash of the `shared` layer, and of each tenant's that can be read, by its id."""
        own = {
            name: layer.bundle.hash for name, layer in list(self.tenants.items()) if isinstance(layer, DirectoryLayer)
        }
        pinned = {pin.layer: hash_ for pin, hash_ in self._pins.items() if pin.role == ACTIVE}
        return {SHARED: self.shared.bundle.hash, **own, **pinned}

    def set_session_rules(self, layers: SessionBundleProvider) -> None:
        """From now on sessions can have rules of their own; before, one that has some is denied everything."""
        self._sessions = layers

    def follow(self, versions: VersionService) -> None:
        """From now on a version that is pinned is in force in place of its layer's files, and what files say is kept.

        Raises:
            PolicyInvalid, VersionUnknown: a pinned version cannot be used; nothing starts with other rules than those.
            StorageUnavailable: the database does not answer.
        """
        self._versions = versions
        self._refresh_pins(versions)
        for pin, problem in self._pin_problems.items():
            if pin.role == ACTIVE:  # what is only tried decides nothing, and stops nothing
                raise problem
        self._record_files(versions)

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """The bundle in force today. A tenant or session whose own rules cannot be read is denied everything."""
        # Each is read once: another may be in force a moment later, and must not be kept under this one's hash.
        own = self._tenant_bundle(tenant)
        return self._combine(self._pinned.get(PinKey(SHARED, ACTIVE)) or self.shared.bundle, own, session_rules)

    def tries(self, tenant: str) -> bool:
        """Whether something is tried for the tenant."""
        return PinKey(SHARED, SHADOW) in self._pinned or PinKey(tenant, SHADOW) in self._pinned

    def candidate(self, tenant: str, session_rules: str | None) -> Candidate | None:
        """What is tried for the tenant: its own candidate, else the shared one."""
        for layer in (tenant, SHARED):
            tried = self._pinned.get(PinKey(layer, SHADOW))
            if tried is not None:
                whole = self.with_layer(layer, tried, TenantId(tenant), session_rules)
                return Candidate(layer, self._pins.get(PinKey(layer, SHADOW), tried.hash), whole)
        return None

    def with_layer(self, layer: str, bundle: Bundle, tenant: TenantId, session_rules: str | None) -> Bundle:
        """What would be in force for the tenant, were that layer this bundle."""
        if layer != SHARED:
            return self._combine_readable(
                self._pinned.get(PinKey(SHARED, ACTIVE)) or self.shared.bundle, bundle, session_rules
            )
        return self._combine(bundle, self._tenant_bundle(tenant), session_rules)

    def pinned(self, layer: str) -> str | None:
        """The hash of the version that is in force in place of the layer's files."""
        return self._pins.get(PinKey(layer, ACTIVE))

    def files_hash(self, layer: str) -> str | None:
        """What the layer's files say, in force or not."""
        found = self.shared if layer == SHARED else self.tenants.get(layer)
        return found.bundle.hash if isinstance(found, DirectoryLayer) else None

    def _tenant_bundle(self, tenant: str) -> Bundle | PolicyInvalid | None:
        pinned = self._pinned.get(PinKey(tenant, ACTIVE))
        if pinned is not None:
            return pinned
        layer = self.tenants.get(tenant)
        return layer.bundle if isinstance(layer, DirectoryLayer) else layer

    def _combine(self, shared: Bundle, own: Bundle | PolicyInvalid | None, session_rules: str | None) -> Bundle:
        if isinstance(own, PolicyInvalid):
            return unreadable_bundle(f"This tenant's policy cannot be read, so nothing is allowed: {own}")
        return self._combine_readable(shared, own, session_rules)

    def _combine_readable(self, shared: Bundle, own: Bundle | None, session_rules: str | None) -> Bundle:
        day = self._clock.now().date()
        key = (shared.hash, own.hash if own else "", session_rules or "", day.isoformat())
        made = self._cache.get(key)
        if made is None:
            whole = merge_layers(shared.on(day), own) if own else shared
            made = with_session_rules(whole.on(day), self._sessions, session_rules).on(day)
            if len(self._cache) >= CACHE_SIZE + 2 * len(self.tenants):
                self._cache.pop(next(iter(self._cache)), None)
            self._cache[key] = made
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

    def refresh(self) -> None:
        """Look at every layer once; new tenants' directories are taken up, removed ones let go.

        Where the directory of all tenants is gone or cannot be read, every tenant keeps its last good rules.
        """
        with self._refresh_lock:
            self.shared.refresh()
            self._refresh_tenants()
            if self._versions is not None:
                try:
                    self._refresh_pins(self._versions)
                    self._record_files(self._versions)
                except StorageUnavailable as fault:
                    _log.warning("which versions of policy are pinned is not known, those known stay: %s", fault)

    def _refresh_pins(self, versions: VersionService) -> None:
        pins = versions.pins()
        if pins == self._pins:
            return
        made = dict(self._pinned)
        problems: dict[PinKey, PolicyInvalid] = {}
        for pin in set(made) - set(pins):
            del made[pin]
        used: dict[PinKey, str] = {}
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

    def _record_files(self, versions: VersionService) -> None:
        """Keep what files say, so that it can be gone back to."""
        layers = {
            SHARED: self.shared,
            **{name: layer for name, layer in self.tenants.items() if isinstance(layer, DirectoryLayer)},
        }
        for name, layer in layers.items():
            if self._recorded.get(name) == layer.bundle.hash or layer.problem is not None:
                continue
            bundle = layer.bundle
            try:
                sources = layer.sources()
            except PolicyInvalid:  # changed since: the next look reads it
                continue
            versions.record_files(name, bundle, sources)
            self._recorded[name] = bundle.hash
        for gone in set(self._recorded) - set(self.tenants) - {SHARED}:
            versions.record_removal(gone)
            del self._recorded[gone]

    def _refresh_tenants(self) -> None:
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
            if isinstance(layer, DirectoryLayer):
                layer.refresh()
                continue
            try:
                self.tenants[name] = DirectoryLayer(self._directory(name), self._known_tools, tenant=True)
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

    def _refresh_and_notify(self) -> None:
        self.refresh()
        self._on_refresh()

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


def _fingerprint(directory: Path) -> Fingerprint:
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
