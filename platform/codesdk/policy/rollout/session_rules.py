"""The rules that sessions are opened with: checked when they come, kept by hash, read again after a restart."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from codesdk.policy.bundles.bundle import Bundle, unreadable_bundle
from codesdk.policy.bundles.layers import SESSION_FILE, make_session_layer, session_layer_from_texts
from codesdk.policy.bundles.texts import rule_texts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.rollout import store
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit

CACHE_SIZE = 256
"""Compiled layers of one process; one more than are in use at a time costs a reading of its text."""


class SessionBundleProvider(Protocol):
    """Who knows what the rules of a hash say."""

    def of(self, bundle_hash: str) -> Bundle:
        """The layer; one that denies everything where its text is gone."""
        ...


class SessionRules:
    """Of one database. Safe to use from any thread."""

    def __init__(self, database: Database, known_tools: Collection[str]) -> None:
        self._database = database
        self._known_tools = known_tools
        self._cache: dict[str, Bundle] = {}

    def check(self, text: str) -> Bundle:
        """The rules in the text of a policy file.

        Raises:
            PolicyInvalid: with line and column; also where a rule would loosen something.
        """
        return make_session_layer(text, self._known_tools)

    def keep(self, unit: Unit, bundle: Bundle, text: str) -> str:
        """Keep the text with the session that is being opened; gives the hash by which it is found again."""
        store.save_text(unit.connection, bundle.hash, {SESSION_FILE: text})
        return bundle.hash

    def of(self, bundle_hash: str) -> Bundle:
        """The layer; one that denies everything where its text is gone or cannot be read any more.

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
            return session_layer_from_texts(rule_texts(sources), self._known_tools)
        except PolicyInvalid as error:  # written under another version, say; or a tool that a rule enables is gone
            return unreadable_bundle(f"The session's own rules cannot be read, so nothing is allowed: {error}")
