"""Caches issuers' keys (JWKS). Fetches them on first use, and again when a token names an unknown key."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from codesdk.tenancy.logins.document_fetch import Fetch, KeysUnavailable
from codesdk.tenancy.logins.issuers import Algorithm, Issuer

CACHE_S = 3600.0
"""Seconds before keys are fetched again: how long a key that its issuer withdrew stays valid here."""
STALE_S = 6 * 3600.0
"""Seconds for which cached keys are used while the issuer doesn't answer."""
MIN_REFETCH_S = 15.0
"""Minimum seconds between two fetches from one issuer, so that a flood of forged tokens doesn't become a flood of
requests.
"""
MAX_KEYS = 64
MIN_RSA_BITS = 2048

_KEY_TYPES = {
    **{Algorithm(f"{family}{bits}"): ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    Algorithm.ES256: ("EC", "P-256"),
    Algorithm.ES384: ("EC", "P-384"),
    Algorithm.ES512: ("EC", "P-521"),
    Algorithm.EDDSA: ("OKP", "Ed25519"),
}
_DISCOVERY = "/.well-known/openid-configuration"


_Source = tuple[str, str | None, tuple[IPv4Network | IPv6Network, ...], bool]
"""How keys were fetched. Keys fetched under other settings than the current ones are not used."""


@dataclass(frozen=True)
class _CachedKeys:
    keys: tuple[dict[str, Any], ...]
    at: float


class JwksCache:
    """Caches the keys of every issuer. Safe to use from any thread."""

    def __init__(self, fetch: Fetch, monotonic: Callable[[], float]) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._cache: dict[_Source, _CachedKeys] = {}
        self._fetched_at: dict[_Source, float] = {}
        self._locks: defaultdict[_Source, threading.Lock] = defaultdict(threading.Lock)

    def key(self, issuer: Issuer, kid: str | None, algorithm: Algorithm) -> PyJWK | None:
        """Return the only key that can verify such a token. None: no key matches, or several do.

        Raises:
            KeysUnavailable: the issuer's keys can't be fetched.
        """
        cached = self._cache.get(_source(issuer))
        if (
            cached is not None
            and self._monotonic() - cached.at < CACHE_S
            and (found := _matching_key(cached, kid, algorithm))
        ):
            return found
        return _matching_key(self._refetch(issuer, cached), kid, algorithm)

    def _refetch(self, issuer: Issuer, seen: _CachedKeys | None) -> _CachedKeys:
        source = _source(issuer)
        with self._locks[source]:
            cached = self._cache.get(source)
            if cached is not None and cached is not seen:
                return cached  # another thread has just fetched them
            now = self._monotonic()
            fetched_at = self._fetched_at.get(source)
            if fetched_at is not None and now - fetched_at < MIN_REFETCH_S:
                return self._stale_or_raise(issuer, cached, now, None)
            self._fetched_at[source] = now
            try:
                found = _CachedKeys(self._load(issuer), now)
            except KeysUnavailable as fault:
                return self._stale_or_raise(issuer, cached, now, fault)
            self._cache[source] = found
            return found

    def _stale_or_raise(
        self, issuer: Issuer, cached: _CachedKeys | None, now: float, fault: KeysUnavailable | None
    ) -> _CachedKeys:
        if cached is not None and now - cached.at < STALE_S:
            return cached
        raise fault or KeysUnavailable(f"The keys of {issuer.issuer} could not be fetched a moment ago.")

    def _load(self, issuer: Issuer) -> tuple[dict[str, Any], ...]:
        place = issuer.jwks
        if place is None:
            told = self._fetch(issuer, issuer.issuer.rstrip("/") + _DISCOVERY)
            place = told.get("jwks_uri")
            if told.get("issuer") != issuer.issuer or not isinstance(place, str):
                raise KeysUnavailable(
                    f"What {issuer.issuer} publishes about itself is another issuer's, or names no keys."
                )
        keys = self._fetch(issuer, place).get("keys")
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            raise KeysUnavailable(f"{place} gives no list of at most {MAX_KEYS} keys.")
        return tuple(key for key in keys if isinstance(key, dict))


def _source(issuer: Issuer) -> _Source:
    return issuer.issuer, issuer.jwks, issuer.networks, issuer.allow_http


def _matching_key(cached: _CachedKeys, kid: str | None, algorithm: Algorithm) -> PyJWK | None:
    fitting = [key for key in cached.keys if _matches(key, algorithm) and kid in (None, key.get("kid"))]
    if len(fitting) != 1:
        return None  # two matching keys: neither can be trusted
    try:
        made = PyJWK(fitting[0], algorithm.value)
    except (PyJWTError, ValueError, TypeError):
        return None
    return made if getattr(made.key, "key_size", MIN_RSA_BITS) >= MIN_RSA_BITS or made.key_type != "RSA" else None


def _matches(key: dict[str, Any], algorithm: Algorithm) -> bool:
    kind, curve = _KEY_TYPES[algorithm]
    if key.get("kty") != kind or (curve is not None and key.get("crv") != curve):
        return False
    return bool(key.get("use", "sig") == "sig" and key.get("alg", algorithm.value) == algorithm.value)
