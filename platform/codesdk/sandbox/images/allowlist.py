"""The operator's allowlist of images for profiles, by digest: `images.yaml`. Adds to those of `sandbox-images/`."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from codesdk.documents import Document, DocumentUnreadable, FileInvalid, read_document
from codesdk.domain.model import FrozenModel

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


class AllowlistInvalid(FileInvalid):
    """The allowlist is invalid; none of its images is allowed."""

    code = "IMAGES_FILE_INVALID"


class Allowlist(FrozenModel):
    """Format of the allowlist file."""

    version: Literal[1]
    images: dict[Name, Digest]
    """Name for profiles -> image id on the engine, or digest in a registry."""


def read_allowlist(path: Path, taken: Collection[str] = (), *, optional: bool = False) -> dict[str, str]:
    """Read the allowlist as name -> digest.

    Args:
        path: the file.
        taken: names of our own images, which an entry must not reuse.
        optional: treat a missing file as an empty list.

    Raises:
        AllowlistInvalid: with line and column.
    """
    if optional and not path.exists():
        return {}
    try:
        return _read(read_document(path), taken)
    except DocumentUnreadable as error:
        raise AllowlistInvalid.of(path, error) from error


def add_image(text: str, name: str, digest: str) -> str | None:
    """Return the file's text with the image added; None if the file doesn't have one image per line.

    `text`: the current text; empty for a new file. Everything else in it stays unchanged.
    """
    if not text.strip():
        return f"version: 1\nimages:\n  {name}: {digest}\n"
    entry = re.compile(rf"^([ ]+{re.escape(name)}:[ ]*)sha256:[0-9a-f]{{64}}", re.MULTILINE)
    if entry.search(text):
        return entry.sub(rf"\g<1>{digest}", text)
    if re.search(rf"^[ ]*[\"']?{re.escape(name)}[\"']?[ ]*:", text, re.MULTILINE):
        return None
    head = re.search(r"^images:[ ]*(?:#.*)?\n(?:[ ]*(?:#.*)?\n)*([ ]+)(?=\S)", text, re.MULTILINE)
    if head is None:
        return None
    place = text.index("\n", head.start()) + 1
    return f"{text[:place]}{head[1]}{name}: {digest}\n{text[place:]}"


def _read(document: Document, taken: Collection[str]) -> dict[str, str]:
    read = document.model(Allowlist)
    for name in read.images:
        if name in taken:
            message = f"`{name}` is the name of an image of sandbox-images; choose another."
            raise DocumentUnreadable(document.place(("images", name)), message)
    return read.images
