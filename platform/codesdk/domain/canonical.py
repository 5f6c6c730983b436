"""Canonical JSON (RFC 8785) and the hashes that stand on it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import rfc8785

from codesdk.errors import ExitCode, Fault


class NotCanonical(Fault):
    """NaN, an infinity, a lone surrogate, a key that is no string, an integer past 2**53, or nested too deeply."""

    code = "NOT_CANONICAL_JSON"
    status = 400
    exit_code = ExitCode.DATA


MAX_DEPTH = 128
"""Levels of lists and objects in one value; our schema validator gives up at 255, Python soon after."""


def canonical_json(value: Any) -> bytes:
    """The one byte string that RFC 8785 gives for `value`.

    Raises:
        NotCanonical: `value` is outside I-JSON, or nested deeper than MAX_DEPTH.
    """
    _check_depth(value)
    try:
        return rfc8785.dumps(value)
    except (rfc8785.CanonicalizationError, UnicodeError) as error:
        raise NotCanonical(f"This value has no canonical JSON form: {error}.") from error


def content_hash(value: Any) -> str:
    """`sha256:<hex>` of the canonical JSON of `value`."""
    return bytes_hash(canonical_json(value))


def bytes_hash(content: bytes) -> str:
    """`sha256:<hex>` of raw bytes."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise NotCanonical(f"This value is nested deeper than {MAX_DEPTH} levels.")


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()
