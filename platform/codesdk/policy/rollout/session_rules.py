"""Session rules: validated, stored by hash, and loaded again after a restart."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from codesdk.policy.bundles.bundle import Bundle, unreadable_bundle
from codesdk.policy.bundles.bundle_files import rule_texts
from codesdk.policy.bundles.layers import SESSION_FILE, make_session_layer, session_layer_from_texts, tools_of_tenant
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.rollout import store
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit

CACHE_SIZE = 256
"""Compiled layers cached per process; others are loaded from the database."""


class SessionBundleProvider(Protocol):
    """Finds session rules by hash."""

    def of(self, bundle_hash: str) -> Bundle:
        """Return the session layer. It denies everything if its text is gone."""
        ...


class SessionRules:
    """The session rules in one database. Safe to use from any thread."""

    def __init__(self, database: Database, known_tools: Collection[str]) -> None:
        self._database = database
        self._known_tools = known_tools
        self._cache: dict[str, Bundle] = {}

    def check(self, text: str, tenant: str) -> Bundle:
        """Parse the rules of a session of the tenant.

        Raises:
            PolicyInvalid: with line and column; also if a rule loosens the policy.
        """
        return make_session_layer(text, tools_of_tenant(self._known_tools, tenant))

    def keep(self, unit: Unit, bundle: Bundle, text: str) -> str:
        """Store the text while opening a session. Return its hash."""
        store.save_text(unit.connection, bundle.hash, {SESSION_FILE: text})
        return bundle.hash

    def of(self, bundle_hash: str) -> Bundle:
        """Return the session layer. It denies everything if its text is gone or no longer valid.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        made = self._cache.get(bundle_hash)
        if made is None:
            made = self._read(bundle_hash)
            if len(self._cache) >= CACHE_SIZE:
                self._cache.pop(next(iter(self._cache)), None)
            self._cache[bundle_hash] = made
        return made

    def _read(self, bundle_hash: str) -> Bundle:
        with self._database.read() as connection:
            sources = store.text_of(connection, bundle_hash)
        if sources is None:
            return unreadable_bundle("The rules that this session was opened with are gone, so nothing is allowed.")
        try:
            # Rules about tools that were removed since stay in force.
            return session_layer_from_texts(rule_texts(sources), None)
        except PolicyInvalid as error:  # for example, stored by another version of CodeSDK
            return unreadable_bundle(f"The session's own rules cannot be read, so nothing is allowed: {error}")
