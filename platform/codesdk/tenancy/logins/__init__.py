"""Logins: principals that come with a token of an issuer that the operator trusts, instead of a key of ours (ADR 33)."""

from codesdk.tenancy.logins.active import ActiveIssuers
from codesdk.tenancy.logins.desk import Entered, Logins
from codesdk.tenancy.logins.fetch import KeysUnavailable, fetching
from codesdk.tenancy.logins.issuers import Issuer, LoginsInvalid, SessionWish, read_issuers
from codesdk.tenancy.logins.keyring import KeyRing
from codesdk.tenancy.logins.tokens import LoginExpired, LoginRefused, is_token

__all__ = [
    "ActiveIssuers",
    "Entered",
    "Issuer",
    "KeyRing",
    "KeysUnavailable",
    "LoginExpired",
    "LoginRefused",
    "Logins",
    "LoginsInvalid",
    "SessionWish",
    "fetching",
    "is_token",
    "read_issuers",
]
