"""Verifies an issuer's token: signature, audience, times, scopes. Refusals name the check that failed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

import jwt
from jwt.exceptions import PyJWTError

from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.logins.issuers import Algorithm, Issuer
from codesdk.tenancy.logins.jwks import JwksCache
from codesdk.tenancy.principal import Unauthenticated

MAX_TOKEN = 8 * 1024
"""Maximum characters of a token; those of common issuers have one to four thousand."""
MAX_SUBJECT = 255
"""Maximum characters of a subject (OpenID Connect Core, section 2)."""
_JWS_PATTERN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)
_TOKEN_TYPES = ("jwt", "at+jwt", "application/at+jwt", "application/jwt")


class LoginRefused(Unauthenticated):
    """The issuer's token was rejected."""

    code = "LOGIN_REFUSED"


class LoginExpired(LoginRefused):
    """The token has expired."""

    code = "LOGIN_EXPIRED"


class ScopeMissing(Forbidden):
    """The token is valid but lacks a scope."""

    code = "LOGIN_SCOPE_MISSING"


class VerifiedToken(NamedTuple):
    """The content of a verified token."""

    issuer: Issuer
    subject: str
    claims: dict[str, Any]


def is_token(text: str) -> bool:
    """Return whether the text has the form of a signed token (JWS). None of our own secrets has."""
    return _JWS_PATTERN.fullmatch(text[: 16 * MAX_TOKEN]) is not None


def verify_token(token: str, issuers: Sequence[Issuer], keys: JwksCache, now: float) -> VerifiedToken:
    """Verify a token. `now`: seconds since the epoch.

    Raises:
        LoginRefused: the token is invalid.
        ScopeMissing: the token is valid but lacks a scope.
        KeysUnavailable: the issuer's keys can't be fetched.
    """
    if len(token) > MAX_TOKEN:
        raise LoginRefused(f"This token has more than {MAX_TOKEN} characters.")
    header, said = _unverified(token)
    issuer = next((each for each in issuers if each.issuer == said.get("iss")), None)
    if issuer is None:
        raise LoginRefused("This installation does not accept logins from this token's issuer.")
    algorithm = _check_header(header, issuer)
    kid = header.get("kid")
    key = keys.key(issuer, kid if isinstance(kid, str) else None, algorithm)
    if key is None or (kid is not None and not isinstance(kid, str)):
        raise LoginRefused("This token is signed with a key that its issuer does not publish.")
    try:
        claims = jwt.decode(
            token,
            key,
            algorithms=[algorithm.value],
            audience=issuer.audience,
            issuer=issuer.issuer,
            # Times are checked below, with the injected clock.
            options={"require": ["exp", "sub"], "verify_exp": False, "verify_nbf": False, "verify_iat": False},
        )
    except jwt.InvalidAudienceError as error:
        raise LoginRefused(f"This token is for another audience; it must be {issuer.audience}.") from error
    except (PyJWTError, ValueError, RecursionError) as error:
        raise LoginRefused("This token is not valid.") from error
    _check_times(claims, issuer.skew_s, now)
    _check_scopes(claims, issuer)
    subject = claims["sub"]
    if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT or not subject.isprintable():
        raise LoginRefused("This token names no subject.")
    return VerifiedToken(issuer, subject, claims)


def _unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    try:
        found = jwt.decode_complete(token, options={"verify_signature": False})
    except (PyJWTError, ValueError, RecursionError) as error:
        raise LoginRefused("This token cannot be read.") from error
    return found["header"], found["payload"]


def _check_header(header: dict[str, Any], issuer: Issuer) -> Algorithm:
    # Never trust the header's algorithm alone: it must be one that the operator listed, and match the key's type.
    if header.get("alg") not in [algorithm.value for algorithm in issuer.algorithms]:
        raise LoginRefused("This token's signature algorithm is not accepted from its issuer.")
    if "crit" in header or str(header.get("typ", "JWT")).lower() not in _TOKEN_TYPES:
        raise LoginRefused("This type of token is not supported.")
    return Algorithm(header["alg"])


def _check_times(claims: dict[str, Any], skew_s: float, now: float) -> None:
    times = {name: claims.get(name) for name in ("exp", "nbf", "iat")}
    for name, given in times.items():
        if given is not None and (isinstance(given, bool) or not isinstance(given, int | float) or not isfinite(given)):
            raise LoginRefused(f"This token's `{name}` is not a time.")
    if now >= float(times["exp"] or 0) + skew_s:
        raise LoginExpired("This token has expired.", advice="Log in again.")
    if max(float(times["nbf"] or 0), float(times["iat"] or 0)) > now + skew_s:
        raise LoginRefused("This token is not valid yet; check that the clocks agree.")


def _check_scopes(claims: dict[str, Any], issuer: Issuer) -> None:
    given = claims.get("scope")
    held = given.split() if isinstance(given, str) else []
    if missing := [scope for scope in issuer.scopes if scope not in held]:
        raise ScopeMissing(f"This token lacks the scope {' '.join(missing)}.", advice="Log in with it.")
