"""Versions of bundles: stored by content hash, promoted, rolled back, and evaluated as shadows. Each step is recorded.

The files of the policy directories are in force unless a version is pinned (docs/adr). Promotion pins a version. A version
that does not load, or fails its own tests, is never pinned.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from codesdk.domain.clock import Clock
from codesdk.domain.ids import IdKind, Ids, PrincipalId, TenantId
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail
from codesdk.policy.bundles.bundle import Bundle, Finding, make_bundle
from codesdk.policy.bundles.bundle_files import BundleTexts
from codesdk.policy.bundles.layers import SESSION, make_tenant_layer, merge_layers, tools_of_tenant
from codesdk.policy.facts import ToolFacts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.linting.linter import bundle_warnings, unknown_groups
from codesdk.policy.linting.tool_schemas import ToolCatalog
from codesdk.policy.rollout import store
from codesdk.policy.rollout.session_rules import SessionRules
from codesdk.policy.rollout.store import PinKey
from codesdk.policy.rollout.version_models import (
    SHARED,
    NoPreviousVersion,
    ShadowDifference,
    TestsFailed,
    TestsTooSlow,
    Version,
    VersionAction,
    VersionChange,
    VersionConflict,
    VersionUnknown,
)
from codesdk.policy.testing.cases import failed_tests, parse_expectations
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy.store import known_groups

_log = logging.getLogger(__name__)

MAX_FAILURES_SHOWN = 20
"""Number of failing tests that an error lists."""
TESTS_LIMIT_S = 30.0
"""Seconds that a bundle's tests may take when it is promoted or rolled back to: they hold a thread of the API."""
SHORT_HASH = re.compile(r"(?:sha256:)?[0-9a-f]{8,64}")
"""A version's hash or a unique prefix of it, at least eight digits long."""
MESSAGE_PATH = Path("version")
"""Path that messages show for files of a stored version."""


_ACTS = {
    VersionAction.PROMOTE: AuditAction.POLICY_PROMOTED,
    VersionAction.ROLLBACK: AuditAction.POLICY_ROLLED_BACK,
    VersionAction.UNPIN: AuditAction.POLICY_UNPINNED,
    VersionAction.SHADOW: AuditAction.POLICY_SHADOW,
    VersionAction.SHADOW_END: AuditAction.POLICY_SHADOW_ENDED,
}
"""Audit actions of changes by principals. `bootstrap/policy_audit.py` records changes of files."""


def build_layer(layer: str, sources: BundleTexts, known_tools: Collection[str] | None) -> Bundle:
    """Compile the bundle of these texts, with the restrictions of the layer. `known_tools`: as for `load_bundle`.

    Raises:
        PolicyInvalid: with file, line and column.
    """
    if layer == SHARED:
        return make_bundle(sources, known_tools, MESSAGE_PATH)
    own = tools_of_tenant(known_tools, layer) if known_tools is not None else None
    return make_tenant_layer(sources, own, MESSAGE_PATH)


def check_tests(
    sources: BundleTexts, bundle: Bundle, tools: Mapping[str, ToolFacts], clock: Clock, *, needed: bool = True
) -> int:
    """Run a bundle's own tests. Return how many passed. `needed` refuses a bundle without tests.

    Raises:
        TestsFailed: there are none, or some fail; names the first. PolicyInvalid: a test file is invalid.
        TestsTooSlow: they take more than `TESTS_LIMIT_S` together.
    """
    due = clock.monotonic() + TESTS_LIMIT_S

    def check_time() -> None:
        if clock.monotonic() >= due:
            raise TestsTooSlow(
                f"The bundle's tests take more than {TESTS_LIMIT_S:g} s together, so it can't be promoted.",
                advice="Write fewer tests or shorter commands; `codesdk policy test` runs all of them without this limit.",
            )

    count = len(parse_expectations(sources, MESSAGE_PATH))
    if not count and needed:
        advice = "Write tests for its rules (`codesdk policy test` runs them)."
        raise TestsFailed("The bundle has no tests, so it can't be promoted.", advice=advice)
    failed = failed_tests(sources, bundle, tools, MESSAGE_PATH, check_time)
    if failed:
        told = [each.message for each in failed[:MAX_FAILURES_SHOWN]]
        said = f"{len(failed)} of {count} tests of the bundle fail, so it can't be promoted: {told[0]}"
        raise TestsFailed(said, details={"failed": told})
    return count


class VersionService:
    """The bundle versions in one database. Safe to use from any thread."""

    def __init__(
        self, database: Database, writer: Writer, ids: Ids, known_tools: Collection[str], clock: Clock
    ) -> None:
        """`known_tools`: a live view of the tools that rules can name."""
        self._database = database
        self._writer = writer
        self._ids = ids
        self._clock = clock
        self._trail = AuditTrail(clock)
        self._known_tools = known_tools

    def pins(self) -> dict[PinKey, str]:
        """Return the pinned versions.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        with self._database.read() as connection:
            return store.pins(connection)

    def bundle(self, layer: str, bundle_hash: str) -> Bundle:
        """Compile a stored version.

        Raises:
            VersionUnknown: its text is missing. PolicyInvalid: it can't be used with the current tools.
        """
        return build_layer(layer, self._texts(bundle_hash), self._known_tools)

    def listing(self, layer: str, limit: int = 100) -> list[Version]:
        """Return the layer's versions, newest first, with the active one and the shadow candidate marked."""
        with self._database.read() as connection:
            found = store.versions(connection, layer, limit)
            active = store.active_hash(connection, layer)
            shadow = store.pins(connection).get(PinKey(layer, store.SHADOW))
        return [one.model_copy(update={"active": one.hash == active, "shadow": one.hash == shadow}) for one in found]

    def history(self, layer: str, limit: int = 100) -> list[VersionChange]:
        """Return the layer's change record, newest first."""
        with self._database.read() as connection:
            return store.changes(connection, layer, limit)

    def record_files(self, layer: str, bundle: Bundle, sources: BundleTexts) -> None:
        """Record the layer's files if they are new, in force or not. Several processes may record the same files."""

        def work(unit: Unit) -> None:
            last = store.last_change(unit.connection, layer, VersionAction.FILES, VersionAction.UNPIN)
            if last is not None and last.hash == bundle.hash:
                return
            self._save(unit, layer, bundle, sources, None)
            if PinKey(layer, store.ACTIVE) not in store.pins(unit.connection):
                self._add_change(unit, layer, VersionAction.FILES, bundle.hash, None, "")

        self._writer.run(work)

    def record_removal(self, layer: str) -> None:
        """Record that a layer no longer has files."""

        def work(unit: Unit) -> None:
            last = store.last_change(unit.connection, layer, VersionAction.FILES, VersionAction.UNPIN)
            pinned = PinKey(layer, store.ACTIVE) in store.pins(unit.connection)
            if last is not None and last.hash is not None and not pinned:
                self._add_change(unit, layer, VersionAction.FILES, None, None, "")

        self._writer.run(work)

    def promote(
        self, layer: str, wanted: BundleTexts | str, tools: Mapping[str, ToolFacts], by: PrincipalId, comment: str = ""
    ) -> tuple[Version, tuple[Finding, ...]]:
        """Put a bundle, or a version by its hash, into force in place of the files. Return it with its lint findings.

        Raises:
            PolicyInvalid: it can't be used. TestsFailed: it fails its own tests, or has none.
            VersionUnknown: there is no version with that hash.
        """
        sources, bundle = self._resolve(layer, wanted)
        check_tests(sources, bundle, tools, self._clock)

        def work(unit: Unit) -> None:
            self._save(unit, layer, bundle, sources, by)
            store.replace_text(unit.connection, bundle.hash, sources)
            self._add_change(unit, layer, VersionAction.PROMOTE, bundle.hash, by, comment)
            store.pin(unit.connection, PinKey(layer, store.ACTIVE), bundle.hash)

        self._writer.run(work)
        _log.warning("policy %s of %s was promoted by %s", bundle.hash, layer, by)
        return self._find(layer, bundle.hash), self._warnings(layer, bundle)

    def roll_back(
        self, layer: str, tools: Mapping[str, ToolFacts], by: PrincipalId, comment: str = "", *, force: bool = False
    ) -> Version:
        """Put the previous version into force. It was in force before, so it needs no tests. `force`: nor must they pass.

        Raises:
            NoPreviousVersion: there is none. PolicyInvalid: it can't be used with the current tools. TestsFailed: it fails its
            own tests with them. VersionConflict: another version came into force meanwhile.
        """
        # Tests may take a second, too long for a unit of work.
        with self._database.read() as connection:
            moved = store.rollback_target(connection, layer)
        if moved is None:
            advice = "`codesdk policy versions` shows what was in force."
            raise NoPreviousVersion("There is no earlier version to roll back to.", advice=advice)
        back = moved.before
        sources = self._texts(back)
        bundle = build_layer(layer, sources, self._known_tools)
        try:
            check_tests(sources, bundle, tools, self._clock, needed=False)
        except (TestsFailed, PolicyInvalid) as error:
            if not force:
                message = f"The previous version fails its own tests today: {error.message}"
                advice = "`codesdk policy rollback --force` puts it into force all the same."
                raise TestsFailed(message, advice=advice, details=error.details) from error
            _log.warning("policy %s of %s fails its own tests: %s", back, layer, error.message)

        def work(unit: Unit) -> None:
            if store.rollback_target(unit.connection, layer) != moved:
                raise VersionConflict(
                    "Another version came into force meanwhile.", advice="Check the active version and try again."
                )
            self._add_change(unit, layer, VersionAction.ROLLBACK, back, by, comment)
            store.pin(unit.connection, PinKey(layer, store.ACTIVE), back)

        self._writer.run(work)
        _log.warning("policy of %s was rolled back to %s by %s", layer, back, by)
        return self._find(layer, back)

    def unpin(self, layer: str, files: str | None, by: PrincipalId, comment: str = "") -> None:
        """Use the files again. `files` is their hash, or None if the layer has none."""

        def work(unit: Unit) -> None:
            self._add_change(unit, layer, VersionAction.UNPIN, files, by, comment)
            store.unpin(unit.connection, PinKey(layer, store.ACTIVE))

        self._writer.run(work)
        _log.warning("policy of %s was unpinned by %s; its files are in force again", layer, by)

    def candidate(self, layer: str, wanted: BundleTexts | str) -> Bundle:
        """Compile a bundle for evaluation only, from its texts or its hash.

        Raises:
            PolicyInvalid: it can't be used. VersionUnknown: there is no version with that hash.
        """
        return self._resolve(layer, wanted)[1]

    def shadow(self, layer: str, wanted: BundleTexts | str, by: PrincipalId) -> Version:
        """Start shadow evaluation of a bundle. Its decisions are never enforced.

        Raises:
            PolicyInvalid: it can't be used. VersionUnknown: there is no version with that hash.
        """
        sources, bundle = self._resolve(layer, wanted)

        def work(unit: Unit) -> None:
            self._save(unit, layer, bundle, sources, by)
            self._add_change(unit, layer, VersionAction.SHADOW, bundle.hash, by, "")
            store.pin(unit.connection, PinKey(layer, store.SHADOW), bundle.hash)

        self._writer.run(work)
        return self._find(layer, bundle.hash)

    def end_shadow(self, layer: str, by: PrincipalId) -> None:
        """End shadow evaluation. The counts are kept."""

        def work(unit: Unit) -> None:
            found = store.pins(unit.connection).get(PinKey(layer, store.SHADOW))
            if found is not None:
                self._add_change(unit, layer, VersionAction.SHADOW_END, found, by, "")
                store.unpin(unit.connection, PinKey(layer, store.SHADOW))

        self._writer.run(work)

    def add_differences(self, seen: Iterable[tuple[str, str, ShadowDifference]]) -> None:
        """Add to the counts of candidates; each item has layer, hash and count."""
        given = list(seen)

        def work(unit: Unit) -> None:
            for layer, bundle_hash, difference in given:
                store.add_difference(unit.connection, layer, bundle_hash, difference)

        self._writer.run(work)

    def differences(self, layer: str, bundle_hash: str) -> list[ShadowDifference]:
        """Return the counts of a candidate, most frequent first."""
        with self._database.read() as connection:
            return store.differences(connection, layer, bundle_hash)

    def _warnings(self, layer: str, bundle: Bundle) -> tuple[Finding, ...]:
        known = tools_of_tenant(self._known_tools, layer) if layer != SHARED else self._known_tools
        schemas = ToolCatalog(known).schemas
        with self._database.read() as connection:
            groups = known_groups(connection, None if layer == SHARED else TenantId(layer))
        return (*bundle_warnings(bundle, MESSAGE_PATH, schemas, None), *unknown_groups(bundle, MESSAGE_PATH, groups))

    # -- helpers -------------------------------------------------------------------------------------------------

    def _resolve(self, layer: str, wanted: BundleTexts | str) -> tuple[BundleTexts, Bundle]:
        if isinstance(wanted, str):
            with self._database.read() as connection:
                found = store.versions_by_prefix(connection, layer, wanted) if SHORT_HASH.fullmatch(wanted) else []
            if not found:  # a version of another layer must not be found by its hash
                raise VersionUnknown(f"There is no version {wanted}.")
            if len(found) > 1:
                raise VersionUnknown(f"Several versions begin with {wanted}: {', '.join(found)}.")
            wanted = self._texts(found[0])
        return wanted, build_layer(layer, wanted, self._known_tools)

    def _texts(self, bundle_hash: str) -> dict[str, str]:
        with self._database.read() as connection:
            sources = store.text_of(connection, bundle_hash)
        if sources is None:
            raise VersionUnknown(f"There is no version {bundle_hash}.")
        return sources

    def _find(self, layer: str, bundle_hash: str) -> Version:
        found = next((version for version in self.listing(layer, 10_000) if version.hash == bundle_hash), None)
        if found is None:
            raise VersionUnknown(f"There is no version {bundle_hash}.")
        return found

    def _save(self, unit: Unit, layer: str, bundle: Bundle, sources: BundleTexts, by: PrincipalId | None) -> None:
        store.save_text(unit.connection, bundle.hash, sources)
        store.save_version(unit.connection, layer, bundle.hash, bundle.name, by)

    def _add_change(  # noqa: PLR0917 (one entry, in the order of its columns)
        self,
        unit: Unit,
        layer: str,
        action: VersionAction,
        bundle_hash: str | None,
        by: PrincipalId | None,
        comment: str,
    ) -> None:
        before = store.active_hash(unit.connection, layer)
        entry = VersionChange(action=action, hash=bundle_hash, before=before, by=by, at=0.0, comment=comment)
        store.add_change(unit.connection, self._ids.new(IdKind.REQUEST), layer, entry)
        if by is not None:
            chain = INSTALLATION if layer == SHARED else layer
            told = {"hash": bundle_hash or "", "before": before or "", "comment": comment}
            self._trail.record(unit, chain, _ACTS[action], actor=by, target="policy", **told)


class RecordedBundles:
    """The bundles that the installation's database has in force, for commands that evaluate its calls again."""

    def __init__(self, database: Database) -> None:
        self._sessions = SessionRules(database, ())
        self._layers: dict[str, Bundle] = {}
        with database.read() as connection:
            for layer in store.layers(connection):
                bundle_hash = store.active_hash(connection, layer)
                sources = store.text_of(connection, bundle_hash) if bundle_hash else None
                if sources is not None:
                    # Their tools were checked when they came into force.
                    self._layers[layer] = build_layer(layer, sources, None)

    @property
    def shared(self) -> Bundle | None:
        """The shared bundle; None if the installation has not run since versions are recorded."""
        return self._layers.get(SHARED)

    def with_shared(self, shared: Bundle) -> Callable[[TenantId, str | None], Bundle]:
        """Return a function that merges `shared` with the tenant's and the session's own rules."""

        def of(tenant: TenantId, session_rules: str | None = None) -> Bundle:
            own = self._layers.get(tenant)
            whole = merge_layers(shared, own) if own is not None else shared
            return merge_layers(whole, self._sessions.of(session_rules), SESSION) if session_rules else whole

        return of
