"""Issuers' keys: fetched at the first need, kept for a while, fetched again when a token names one that is not known."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from typing import Any

from jwt import PyJWK
from jwt.exceptions import PyJWTError

from codesdk.tenancy.logins.fetch import Fetch, KeysUnavailable
from codesdk.tenancy.logins.issuers import Algorithm, Issuer

KEEP_S = 3600.0
"""Seconds after which keys are fetched again: how long one that its issuer took away is still good here."""
STALE_S = 6 * 3600.0
"""Seconds for which they are used where the issuer does not answer."""
AGAIN_S = 15.0
"""Seconds between two fetches from one issuer, whatever tokens name: a flood of forged ones must not become its flood."""
MOST_KEYS = 64
LEAST_RSA_BITS = 2048

_KINDS = {
    **{Algorithm(f"{family}{bits}"): ("RSA", None) for family in ("RS", "PS") for bits in (256, 384, 512)},
    Algorithm.ES256: ("EC", "P-256"),
    Algorithm.ES384: ("EC", "P-384"),
    Algorithm.ES512: ("EC", "P-521"),
    Algorithm.EDDSA: ("OKP", "Ed25519"),
}
_DISCOVERY = "/.well-known/openid-configuration"


_Way = tuple[str, str | None, tuple[IPv4Network | IPv6Network, ...], bool]
"""Where keys came from, and how: what came another way than the operator's list says now is not used."""


@dataclass(frozen=True)
class _Held:
    keys: tuple[dict[str, Any], ...]
    at: float


class KeyRing:
    """Every issuer's keys. Safe to use from any thread."""

    def __init__(self, fetch: Fetch, monotonic: Callable[[], float]) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._held: dict[_Way, _Held] = {}
        self._tried: dict[_Way, float] = {}
        self._locks: defaultdict[_Way, threading.Lock] = defaultdict(threading.Lock)

    def key(self, issuer: Issuer, kid: str | None, algorithm: Algorithm) -> PyJWK | None:
        """The one key that such a token can be signed with; None: the issuer has none, or several and the token names none.

        Raises:
            KeysUnavailable: the issuer's keys cannot be had.
        """
        held = self._held.get(_way(issuer))
        if held is not None and self._monotonic() - held.at < KEEP_S and (found := _pick(held, kid, algorithm)):
            return found
        return _pick(self._renewed(issuer, held), kid, algorithm)

    def _renewed(self, issuer: Issuer, seen: _Held | None) -> _Held:
        way = _way(issuer)
        with self._locks[way]:
            held = self._held.get(way)
            if held is not None and held is not seen:
                return held  # another thread has just been there
            now = self._monotonic()
            tried = self._tried.get(way)
            if tried is not None and now - tried < AGAIN_S:
                return self._old(issuer, held, now, None)
            self._tried[way] = now
            try:
                found = _Held(self._load(issuer), now)
            except KeysUnavailable as fault:
                return self._old(issuer, held, now, fault)
            self._held[way] = found
            return found

    def _old(self, issuer: Issuer, held: _Held | None, now: float, fault: KeysUnavailable | None) -> _Held:
        if held is not None and now - held.at < STALE_S:
            return held
        raise fault or KeysUnavailable(f"The keys of {issuer.issuer} could not be had a moment ago.")

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
        if not isinstance(keys, list) or len(keys) > MOST_KEYS:
            raise KeysUnavailable(f"{place} gives no list of at most {MOST_KEYS} keys.")
        return tuple(key for key in keys if isinstance(key, dict))


def _way(issuer: Issuer) -> _Way:
    return issuer.issuer, issuer.jwks, issuer.networks, issuer.allow_http


def _pick(held: _Held, kid: str | None, algorithm: Algorithm) -> PyJWK | None:
    fitting = [key for key in held.keys if _fits(key, algorithm) and kid in (None, key.get("kid"))]
    if len(fitting) != 1:
        return None  # two keys of one name are nobody's
    try:
        made = PyJWK(fitting[0], algorithm.value)
    except (PyJWTError, ValueError, TypeError):
        return None
    return made if getattr(made.key, "key_size", LEAST_RSA_BITS) >= LEAST_RSA_BITS or made.key_type != "RSA" else None


def _fits(key: dict[str, Any], algorithm: Algorithm) -> bool:
    kind, curve = _KINDS[algorithm]
    if key.get("kty") != kind or (curve is not None and key.get("crv") != curve):
        return False
    return bool(key.get("use", "sig") == "sig" and key.get("alg", algorithm.value) == algorithm.value)
