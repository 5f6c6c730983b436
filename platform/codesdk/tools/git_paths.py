"""File names as git writes them in a diff: in quotes, with escapes, where they hold anything unusual. Pure."""

from __future__ import annotations

from codesdk.domain import patch_headers
from codesdk.tools.hunks import PatchRejected


def unquote_path(name: str) -> str:
    """The name itself.

    Raises:
        PatchRejected: an escape that git does not write, bytes that are no UTF-8, or too many of them.
    """
    try:
        return patch_headers.unquote_path(name)
    except ValueError as error:
        raise PatchRejected(str(error)) from error


def quote_path(name: str) -> str:
    """The name as git writes it: in quotes where it holds anything that could be read as something else."""
    plain = name.isprintable() and not set(name) & set('"\\') and name == name.strip()
    if plain:
        return name
    kept = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'"\\' else f"\\{byte:03o}" for byte in _bytes(name))  # noqa: PLR2004 (ASCII)
    return f'"{"".join(kept)}"'


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
