"""Recognizes what isn't text by its first bytes, and reads the size of images from their headers. Decodes nothing. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import NamedTuple

MAX_IMAGE_BYTES = 1024 * 1024
"""Largest image that an answer holds: base64 adds a third, and clients refuse messages of a few megabytes."""
MAX_IMAGE_SIDE = 2000
"""Pixels. Models see larger images no better, and some providers refuse them."""
_MAX_STRANGE, _MAX_STRANGE_UTF8 = 0.3, 0.5
"""Part of a text's characters that may be controls or invalid: Latin-1 has fewer, compressed data more."""
_CONTROLS_OF_TEXT = "\t\n\r\f\b\x1b"
_SAMPLE_BYTES = 64 * 1024
_KINDS = (
    (b"\x89PNG\r\n\x1a\n", "a PNG image", ""),
    (b"\xff\xd8\xff", "a JPEG image", ""),
    (b"GIF87a", "a GIF image", ""),
    (b"GIF89a", "a GIF image", ""),
    (b"%PDF-", "a PDF document", "pdftotext -layout {} -"),
    (b"PK\x03\x04", "a ZIP archive (also: docx, xlsx, jar)", "unzip -l {}"),
    (b"\x1f\x8b", "gzip data", "zcat {}"),
    (b"BZh", "bzip2 data", "bzcat {}"),
    (b"\xfd7zXZ\x00", "xz data", "xzcat {}"),
    (b"\x28\xb5\x2f\xfd", "zstd data", "zstdcat {}"),
    (b"SQLite format 3\x00", "an SQLite database", "sqlite3 {} .dump"),
    (b"\x7fELF", "an ELF program", "strings {}"),
    (b"\xff\xfe", "UTF-16 text", "iconv -f utf-16 -t utf-8 {}"),
    (b"\xfe\xff", "UTF-16 text", "iconv -f utf-16 -t utf-8 {}"),
)
"""First bytes, what they begin, and the command that shows such a file as text."""


class Kind(NamedTuple):
    """What a file is that isn't UTF-8 text."""

    name: str
    command: str
    """Shows it as text; `{}` stands for the file."""


class Image(NamedTuple):
    """What an image's header says."""

    mime_type: str
    width: int
    height: int

    @property
    def fits(self) -> bool:
        """Whether an answer may hold an image of these dimensions."""
        return 0 < self.width <= MAX_IMAGE_SIDE and 0 < self.height <= MAX_IMAGE_SIDE


def kind_of(data: bytes) -> Kind:
    """The kind of a file that isn't UTF-8 text, by its first bytes."""
    for magic, name, command in _KINDS:
        if data.startswith(magic):
            return Kind(name, command)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Kind("a WebP image", "")
    if is_binary(data):
        return Kind("binary data", "xxd {} | head")
    return Kind("text in another encoding than UTF-8", "iconv -f latin1 -t utf-8 {}")


def is_binary(data: bytes) -> bool:
    """Whether showing this as text would show nothing readable, by its first bytes.

    UTF-8 with some NULs is text: `find -print0` prints it.
    """
    sample = data[:_SAMPLE_BYTES]
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(sample)
    strange = sum(letter == "\ufffd" or (letter < " " and letter not in _CONTROLS_OF_TEXT) for letter in text)
    is_utf8 = "\ufffd" not in text
    return strange > len(text) * (_MAX_STRANGE_UTF8 if is_utf8 else _MAX_STRANGE) or (not is_utf8 and b"\0" in sample)


def read_image(data: bytes) -> Image | None:
    """Type and dimensions, from the header; None if it isn't a PNG, JPEG, GIF or WebP image with a readable header."""
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
        return _image("image/png", data[16:20], data[20:24])
    if data[:6] in (b"GIF87a", b"GIF89a"):
        return _image("image/gif", data[6:8][::-1], data[8:10][::-1])
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _read_webp(data)
    if data.startswith(b"\xff\xd8\xff"):
        for marker, segment in _jpeg_segments(data):
            if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # noqa: PLR2004 (SOF0 to SOF15, ITU T.81)
                return _image("image/jpeg", segment[3:5], segment[1:3])
    return None


def _image(mime_type: str, width: bytes, height: bytes) -> Image:
    return Image(mime_type, int.from_bytes(width, "big"), int.from_bytes(height, "big"))


def _read_webp(data: bytes) -> Image | None:
    match data[12:16]:
        case b"VP8X":
            sides = (data[24:27], data[27:30])
            width, height = (int.from_bytes(side, "little") + 1 for side in sides)
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = (int.from_bytes(side, "little") & 0x3FFF for side in (data[26:28], data[28:30]))
        case _:
            return None
    return Image("image/webp", width, height)


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:  # noqa: PLR2004 (begins a marker)
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == 0xFF:  # noqa: PLR2004 (a fill byte)
            at += 1
            continue
        yield data[at + 1], data[at + 4 : at + 2 + length]
        at += 2 + max(2, length)
