"""Logins: authenticates principals by tokens of issuers that the operator trusts (ADR 33)."""

from codesdk.tenancy.logins.active_issuers import ActiveIssuers
from codesdk.tenancy.logins.document_fetch import KeysUnavailable, make_fetch
from codesdk.tenancy.logins.issuers import Issuer, LoginsInvalid, SessionTemplate, read_issuers
from codesdk.tenancy.logins.jwks import JwksCache
from codesdk.tenancy.logins.service import LoginResult, LoginService
from codesdk.tenancy.logins.tokens import LoginExpired, LoginRefused, is_token

__all__ = [
    "ActiveIssuers",
    "Issuer",
    "JwksCache",
    "KeysUnavailable",
    "LoginExpired",
    "LoginRefused",
    "LoginResult",
    "LoginService",
    "LoginsInvalid",
    "SessionTemplate",
    "is_token",
    "make_fetch",
    "read_issuers",
]
