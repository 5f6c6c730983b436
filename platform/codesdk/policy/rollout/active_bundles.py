"""The active bundles: reloaded when their files change, as a whole or not at all. The last valid ones stay in force."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from codesdk.documents import FileInvalid, FilePoller, ReloadedFiles, ReloadedFolders
from codesdk.domain.clock import Clock
from codesdk.domain.ids import TenantId
from codesdk.policy.bundles.bundle import Bundle, make_bundle, unreadable_bundle
from codesdk.policy.bundles.bundle_files import TESTS, read_bundle_texts, read_test_texts, unread_files, yaml_files
from codesdk.policy.bundles.layers import SESSION, make_tenant_layer, merge_layers, tools_of_tenant
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.rollout.session_rules import SessionBundleProvider
from codesdk.policy.rollout.shadow import Candidate
from codesdk.policy.rollout.store import ACTIVE, SHADOW, PinKey
from codesdk.policy.rollout.version_models import SHARED, VersionUnknown
from codesdk.policy.rollout.version_service import VersionService
from codesdk.policy.testing.cases import failed_tests
from codesdk.storage.database import StorageUnavailable

_log = logging.getLogger(__name__)

CACHE_SIZE = 256
"""Merged bundles cached per process, for tenants and sessions with their own rules."""


class BundleProvider(Protocol):
    """Finds the bundle in force for a session."""

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """Return the tenant's active bundle, merged with the session rules of that hash."""
        ...


def with_session_rules(upper: Bundle, sessions: SessionBundleProvider | None, session_rules: str | None) -> Bundle:
    """Merge a session's own rules, if it has any; without access to them, deny everything."""
    if session_rules is None:
        return upper
    if sessions is None:
        return unreadable_bundle("This session's own rules can't be loaded, so nothing is allowed.")
    return merge_layers(upper, sessions.of(session_rules), SESSION)


class DirectoryLayer(ReloadedFiles[Bundle]):
    """The bundle of one directory, with the texts that it was made from. Checked again when its files or the tools change."""

    def __init__(
        self, directory: Path, known_tools: Collection[str], *, tenant: bool = False, enforce_tests: bool = True
    ) -> None:
        """Load the directory. If `known_tools` has only names, not the tools by name, the bundle's tests don't run.

        Raises:
            PolicyInvalid: the bundle is invalid, or fails one of its own tests and `enforce_tests` is set.
        """
        self._directory = directory
        self._known_tools = tools_of_tenant(known_tools, directory.name) if tenant else known_tools
        self._is_tenants = tenant
        self._enforce_tests = enforce_tests
        self._refused: tuple[dict[str, str], PolicyInvalid] | None = None
        """The texts that were refused with the current tools, and why, so that a poll doesn't compile and test them again."""
        self._tools = tools_fingerprint(self._known_tools)
        what = f"rules of {directory.name}" if tenant else "shared rules"
        super().__init__(what, partial(_files, directory), self._load_bundle)

    def refresh(self, *, force: bool = False) -> bool:
        """Load the files again if they or the tools changed. Returns whether the rules changed."""
        now = tools_fingerprint(self._known_tools)
        if now == self._tools:
            return super().refresh(force=force)
        self._tools, self._refused = now, None
        return super().refresh(force=True)

    def _load_bundle(self) -> Bundle:
        texts = {**read_bundle_texts(self._directory), **read_test_texts(self._directory)}
        if self._refused is not None and self._refused[0] == texts:
            raise self._refused[1]
        try:
            make = make_tenant_layer if self._is_tenants else make_bundle
            bundle = make(texts, self._known_tools, self._directory)
            self._run_tests(texts, bundle)
        except PolicyInvalid as error:
            self._refused = texts, error
            raise
        self._texts, self._refused = texts, None
        return bundle

    def _run_tests(self, texts: dict[str, str], bundle: Bundle) -> None:
        if not isinstance(self._known_tools, Mapping):
            return
        failed = failed_tests(texts, bundle, self._known_tools, self._directory)
        if failed and self._enforce_tests:
            raise PolicyInvalid.of_all(failed)
        if failed:
            _log.warning("the rules in %s fail their own tests: %s", self._directory, PolicyInvalid.of_all(failed))

    @property
    def bundle(self) -> Bundle:
        """The last valid bundle."""
        return self.value

    def sources(self) -> dict[str, str]:
        """Return the texts of the bundle and its tests."""
        return dict(self._texts)


class ActiveBundles:
    """The shared bundle, merged with the tenant's and the session's own rules."""

    def __init__(
        self,
        shared: Path,
        known_tools: Collection[str],
        clock: Clock,
        *,
        tenants: Path | None = None,
        enforce_tests: bool = True,
    ) -> None:
        """Load all bundles.

        Args:
            shared: directory of the shared bundle.
            known_tools: a live view of the tools that rules can name.
            clock: gives the day on which rules expire.
            tenants: directory with one subdirectory for each tenant with its own rules, named by the tenant's id.
            enforce_tests: refuse files that fail their own tests.

        Raises:
            PolicyInvalid: a bundle is invalid or fails its own tests, or `tenants` does not exist.
        """
        self._clock = clock
        self._sessions: SessionBundleProvider | None = None
        self._known_tools = known_tools
        self.shared = DirectoryLayer(shared, known_tools, enforce_tests=enforce_tests)
        make = partial(DirectoryLayer, known_tools=known_tools, tenant=True, enforce_tests=enforce_tests)
        self._tenants = ReloadedFolders(tenants, "tenants' policies", make, PolicyInvalid)
        self._cache: dict[tuple[str, ...], Bundle] = {}
        self._versions: VersionService | None = None
        self._pinned: dict[PinKey, Bundle] = {}
        self._pins: dict[PinKey, str] = {}
        self._recorded: dict[str, str] = {}
        """Hash of each layer's files in the change record, by layer."""
        self._pin_problems: dict[PinKey, PolicyInvalid] = {}
        self._pins_tools: frozenset[object] | None = None
        """Fingerprint of the tools that pinned versions were checked with."""
        self._refresh_lock = threading.Lock()
        """Serializes refreshes by the poller and by requests that change a pin."""
        self._watch = FilePoller("the policy's files", self._refresh_and_notify, thread="codesdk-policy")
        self._on_refresh: Callable[[], None] = lambda: None

    @property
    def tenants(self) -> dict[str, DirectoryLayer]:
        """The readable tenant layers, by the tenant's id."""
        return self._tenants.valid()

    def on_refresh(self, listener: Callable[[], None]) -> None:
        """Run `listener` after each poll, on the poller's thread."""
        self._on_refresh = listener

    def hashes(self) -> dict[str, str]:
        """Return the active hashes: of the `shared` layer, and of each readable tenant layer by the tenant's id."""
        own = {name: layer.bundle.hash for name, layer in self.tenants.items()}
        pinned = {pin.layer: hash_ for pin, hash_ in self._pins.items() if pin.role == ACTIVE}
        return {SHARED: self.shared.bundle.hash, **own, **pinned}

    def set_session_rules(self, layers: SessionBundleProvider) -> None:
        """Enable session rules. Until then, a session with its own rules is denied everything."""
        self._sessions = layers

    def follow(self, versions: VersionService) -> None:
        """Use pinned versions in place of files from now on, and record the versions of files.

        Raises:
            PolicyInvalid, VersionUnknown: a pinned version cannot be used.
            StorageUnavailable: the database does not answer.
        """
        self._versions = versions
        self._refresh_pins(versions)
        for pin, problem in self._pin_problems.items():
            if pin.role == ACTIVE:  # a broken candidate does not prevent a start
                raise problem
        self._record_files(versions)

    def of(self, tenant: TenantId, session_rules: str | None = None) -> Bundle:
        """Return the active bundle today. If a tenant's or session's rules are unreadable, it denies everything."""
        # Read each layer once: a concurrent refresh must not store one layer under the other's cache key.
        own = self._tenant_bundle(tenant)
        return self._combine(self._pinned.get(PinKey(SHARED, ACTIVE)) or self.shared.bundle, own, session_rules)

    def tries(self, tenant: str) -> bool:
        """Return whether there is a shadow candidate for the tenant."""
        return PinKey(SHARED, SHADOW) in self._pinned or PinKey(tenant, SHADOW) in self._pinned

    def candidate(self, tenant: str, session_rules: str | None) -> Candidate | None:
        """Return the tenant's own candidate, else the shared one; None if there is neither."""
        for layer in (tenant, SHARED):
            tried = self._pinned.get(PinKey(layer, SHADOW))
            if tried is not None:
                whole = self.with_layer(layer, tried, TenantId(tenant), session_rules)
                return Candidate(layer, self._pins.get(PinKey(layer, SHADOW), tried.hash), whole)
        return None

    def with_layer(self, layer: str, bundle: Bundle, tenant: TenantId, session_rules: str | None) -> Bundle:
        """Return the tenant's bundle with one layer replaced by `bundle`."""
        if layer != SHARED:
            return self._combine_readable(
                self._pinned.get(PinKey(SHARED, ACTIVE)) or self.shared.bundle, bundle, session_rules
            )
        return self._combine(bundle, self._tenant_bundle(tenant), session_rules)

    def pinned(self, layer: str) -> str | None:
        """Return the hash of the layer's pinned version; None if none is pinned."""
        return self._pins.get(PinKey(layer, ACTIVE))

    def files_hash(self, layer: str) -> str | None:
        """Return the hash of the layer's files, in force or not; None if they can't be used."""
        found = self.shared if layer == SHARED else self.tenants.get(layer)
        return found.bundle.hash if found is not None else None

    def _tenant_bundle(self, tenant: str) -> Bundle | FileInvalid | None:
        pinned = self._pinned.get(PinKey(tenant, ACTIVE))
        if pinned is not None:
            return pinned
        layer = self._tenants.layers.get(tenant)
        return layer.bundle if isinstance(layer, DirectoryLayer) else layer

    def _combine(self, shared: Bundle, own: Bundle | FileInvalid | None, session_rules: str | None) -> Bundle:
        if isinstance(own, FileInvalid):
            return unreadable_bundle(f"This tenant's policy cannot be read, so nothing is allowed: {own}")
        return self._combine_readable(shared, own, session_rules)

    def _combine_readable(self, shared: Bundle, own: Bundle | None, session_rules: str | None) -> Bundle:
        day = self._clock.now().date()
        key = (shared.hash, own.hash if own else "", session_rules or "", day.isoformat())
        made = self._cache.get(key)
        if made is None:
            whole = merge_layers(shared.on(day), own) if own else shared
            made = with_session_rules(whole.on(day), self._sessions, session_rules).on(day)
            if len(self._cache) >= CACHE_SIZE + 2 * len(self._tenants.layers):
                self._cache.pop(next(iter(self._cache)), None)
            self._cache[key] = made
        return made

    def problems(self) -> dict[str, FileInvalid]:
        """Return problems that keep files from being used, by `shared`, `tenants` or the tenant's id."""
        found = {"shared": self.shared.problem} if self.shared.problem else {}
        found |= {pin.layer: problem for pin, problem in sorted(self._pin_problems.items(), reverse=True)}
        return found | self._tenants.problems("tenants")

    def refresh(self) -> None:
        """Refresh every layer; add new tenants' directories and drop removed ones.

        If the directory of all tenants is gone or unreadable, every tenant keeps its last valid rules.
        """
        with self._refresh_lock:
            self.shared.refresh()
            self._tenants.refresh()
            if self._versions is not None:
                try:
                    self._refresh_pins(self._versions)
                    self._record_files(self._versions)
                except StorageUnavailable as fault:
                    _log.warning("cannot read the pinned policy versions, the last known ones stay in force: %s", fault)

    def _refresh_pins(self, versions: VersionService) -> None:
        pins = versions.pins()
        tools = tools_fingerprint(self._known_tools)
        if pins == self._pins and tools == self._pins_tools:
            return
        made = dict(self._pinned)
        problems: dict[PinKey, PolicyInvalid] = {}
        for pin in set(made) - set(pins):
            del made[pin]
        used: dict[PinKey, str] = {}
        for pin, bundle_hash in pins.items():
            is_used = pin in made and self._pins.get(pin) == bundle_hash
            if is_used:
                used[pin] = bundle_hash  # also if a tool that it names is gone: its rules stay in force
                if tools == self._pins_tools:
                    continue
            try:
                made[pin] = versions.bundle(pin.layer, bundle_hash)
            except (PolicyInvalid, VersionUnknown) as error:  # retried at each poll: a tool may come back
                unusable = error if isinstance(error, PolicyInvalid) else PolicyInvalid(bundle_hash, 1, 1, str(error))
                problems[pin] = unusable
                if str(unusable) != str(self._pin_problems.get(pin)):
                    so = "no longer fits the tools, and stays in force until a restart" if is_used else "is not used"
                    _log.error("the %s version %s of %s %s: %s", pin.role, bundle_hash, pin.layer, so, error)
            else:
                used[pin] = bundle_hash
                if is_used:
                    continue
                _log.info("the %s policy of %s is version %s now", pin.role, pin.layer, bundle_hash)
        self._pinned, self._pins, self._pin_problems, self._pins_tools = made, used, problems, tools

    def _record_files(self, versions: VersionService) -> None:
        """Record the versions of files, for rollback."""
        for name, layer in {SHARED: self.shared, **self.tenants}.items():
            if self._recorded.get(name) == layer.bundle.hash or layer.problem is not None:
                continue
            versions.record_files(name, layer.bundle, layer.sources())
            self._recorded[name] = layer.bundle.hash
        for gone in set(self._recorded) - set(self._tenants.layers) - {SHARED}:
            versions.record_removal(gone)
            del self._recorded[gone]

    def watch(self) -> None:
        """Start polling for changes, until `close`."""
        self._watch.start()

    def close(self) -> None:
        """Stop polling."""
        self._watch.close()

    def _refresh_and_notify(self) -> None:
        self.refresh()
        self._on_refresh()


def tools_fingerprint(known_tools: Collection[str]) -> frozenset[object]:
    """Return what rules and their tests depend on in the tools. Compared at each poll, so not hashed."""
    if not isinstance(known_tools, Mapping):
        return frozenset(known_tools)
    found = known_tools.items()
    return frozenset((name, tool.classification, tool.schema_hash, tool.enabled) for name, tool in found)


def _files(directory: Path) -> list[Path]:
    """Every file that decides whether the bundle loads, for the poll."""
    try:
        read = yaml_files(directory)
        return sorted({*read, *yaml_files(directory / TESTS), *unread_files(directory)}) if read else []
    except (OSError, PolicyInvalid):  # reading the files reports the error
        return []
