"""Canonical JSON (RFC 8785) and the hashes that stand on it."""

from __future__ import annotations

import hashlib
from typing import Any

import rfc8785

from codesdk.errors import ExitCode, Fault


class NotCanonical(Fault):
    """A value that JSON cannot say: NaN, an infinity, a lone surrogate, a key that is no string, an integer past 2**53."""

    code = "NOT_CANONICAL_JSON"
    status = 400
    exit_code = ExitCode.DATA


def canonical_json(value: Any) -> bytes:
    """The one byte string that RFC 8785 gives for `value`.

    Raises:
        NotCanonical: `value` is outside I-JSON.
    """
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise NotCanonical(f"This value has no canonical JSON form: {error}.") from error
    except RecursionError as error:
        raise NotCanonical("This value is nested too deeply.") from error


def content_hash(value: Any) -> str:
    """`sha256:<hex>` of the canonical JSON of `value`."""
    return bytes_hash(canonical_json(value))


def bytes_hash(content: bytes) -> str:
    """`sha256:<hex>` of raw bytes."""
    return "sha256:" + hashlib.sha256(content).hexdigest()
