"""Files that are no text: images are shown, of others it's said what they are and which command shows them as text."""

from __future__ import annotations

import shlex

from codesdk.domain.media import MAX_IMAGE_BYTES, MAX_IMAGE_SIDE, is_binary, kind_of, read_image
from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import FileRefused
from codesdk.tools.context import Attachment, ToolContext
from codesdk.tools.readable import OUTPUT_ADDRESS, Readable

_PDF = b"%PDF-"
_HEAD_BYTES = 4096
"""Bytes by which a file's kind is recognized."""


def media_result(path: str, source: Readable, context: ToolContext) -> ToolResult | None:
    """An image, which becomes an artifact that answers show, or why there is none; None for any other file."""
    image = read_image(source.first)
    if source.first.startswith(_PDF) or (image is None and is_binary(source.first)):
        return _refusal(path, source.first, source.size)
    if image is None:
        return None
    about = f"{path} is {kind_of(source.first).name} of {image.width} x {image.height} pixels and {source.size} bytes"
    if source.size > min(MAX_IMAGE_BYTES, source.window) or not image.fits:
        text = (
            f"{about}; images of up to {MAX_IMAGE_SIDE} x {MAX_IMAGE_SIDE} pixels and {MAX_IMAGE_BYTES} bytes are shown."
            f" Make it smaller and read the copy, for example with one of these commands:\n{_downscaling(path)}"
        )
        return ToolResult(text=text, is_error=True, code="IMAGE_TOO_LARGE")
    context.attach(Attachment(f"image.{image.mime_type.rpartition('/')[2]}", image.mime_type, source.first))
    structured = {
        "path": path,
        "content": "",
        "start_line": 0,
        "end_line": 0,
        "total_lines": 0,
        "truncated": False,
        "sha256": source.sha256,
        "media": {"type": image.mime_type, "width": image.width, "height": image.height, "bytes": source.size},
    }
    return ToolResult(text=f"{about}.", structured=structured)


def not_text_result(path: str, context: ToolContext) -> ToolResult:
    """What a file is that can't be read as text."""
    if path.startswith(OUTPUT_ADDRESS):
        output = context.find_output(path.removeprefix(OUTPUT_ADDRESS))
        return _refusal(path, output.read(0, _HEAD_BYTES) if output else b"", output.size if output else 0)
    content = context.files.read(path, length=_HEAD_BYTES)
    return _refusal(path, b"", 0) if isinstance(content, FileRefused) else _refusal(path, content.data, content.size)


def _refusal(path: str, head: bytes, size: int) -> ToolResult:
    kind = kind_of(head)
    text = f"{path} is not UTF-8 text: it is {kind.name}, {size} bytes."
    if kind.command and not path.startswith(OUTPUT_ADDRESS):
        text += f" To see it as text, run a command: {kind.command.format(shlex.quote(path))}"
    return ToolResult(text=text, is_error=True, code="NOT_TEXT")


def _downscaling(path: str) -> str:
    name, copy = shlex.quote(path), "smaller.png"
    resize = f"from PIL import Image; i = Image.open({path!r}); i.thumbnail((1500, 1500)); i.save({copy!r})"
    return f"convert {name} -resize '1500x1500>' {copy}\npython3 -c {shlex.quote(resize)}"
