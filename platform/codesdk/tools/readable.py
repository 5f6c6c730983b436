"""What workspace.read reads: a file of the workspace, or an output that a result has shown in part."""

from __future__ import annotations

import codecs
from collections.abc import Callable

from codesdk.sandbox.port import FileContent, FileError, FileRefused
from codesdk.tools.context import ToolContext

OUTPUT_ADDRESS = "codesdk://artifacts/"
"""What the path of an output begins with: the address by which results and MCP clients name it."""
_OUTPUT_WINDOW = 4 * 1024 * 1024
_CONTINUATION = range(0x80, 0xC0)
_MAX_CONTINUATION = 3
"""Bytes of a UTF-8 character after its first."""


class ReadRefused(Exception):
    """A read of a file that was readable before."""

    def __init__(self, refusal: FileRefused) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Readable:
    """Bytes by offset. The first window is read at once; what is behind it is read where a page needs it."""

    def __init__(
        self,
        first: bytes,
        size: int,
        read: Callable[[int, int], bytes],
        *,
        window: int,
        sha256: str | None = None,
        is_cut: bool = False,
        is_output: bool = False,
    ) -> None:
        """`window`: bytes that are read at once. `is_cut`: there is more, which can't be read."""
        self.first = first
        self.size = size
        self.window = window
        self.sha256 = sha256
        self.is_cut = is_cut
        self._read = read
        self._errors = "surrogateescape" if is_output else "strict"  # a program prints what it likes

    @property
    def total_lines(self) -> int | None:
        """None if only a part was read."""
        if len(self.first) < self.size:
            return None
        return self.first.count(b"\n") + (self.size > 0 and not self.first.endswith(b"\n"))

    def check_text(self) -> None:
        """Check that what is read at once is text.

        Raises:
            UnicodeDecodeError: it isn't UTF-8.
        """
        self.decode(self.first, is_first=True, is_last=len(self.first) >= self.size)

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes; fewer only at the end.

        Raises:
            ReadRefused: the file can't be read any more.
        """
        data = self.first[offset : offset + length]
        while len(data) < length and offset + len(data) < self.size:
            part = self._read(offset + len(data), length - len(data))
            if not part:
                break
            data += part
        return data

    def decode(self, data: bytes, *, is_first: bool, is_last: bool) -> tuple[str, int]:
        """The text, and the bytes at its beginning that belong to a character of the page before.

        A character that the end of `data` splits is left for the next page. A byte of an output that isn't UTF-8 is a
        surrogate, so that the text still has its length in bytes.
        """
        skipped = 0
        while not is_first and skipped < min(_MAX_CONTINUATION, len(data)) and data[skipped] in _CONTINUATION:
            skipped += 1
        return codecs.getincrementaldecoder("utf-8")(self._errors).decode(data[skipped:], final=is_last), skipped


def open_readable(path: str, context: ToolContext) -> Readable | FileRefused:
    """The file or output of that path, without what policy redacts.

    Raises:
        UnicodeDecodeError: it isn't UTF-8, and policy redacts text in it.
    """
    if path.startswith(OUTPUT_ADDRESS):
        return _open_output(path, context)
    window = context.profile.max_read_bytes
    content = context.files.read(path, length=window)
    if isinstance(content, FileRefused):
        return content
    if context.redactor is not None:
        return _cleaned(content.data, content.size, context, sha256=content.sha256)

    def read(offset: int, length: int) -> bytes:
        return _read_file(path, offset, length, context).data

    return Readable(content.data, content.size, read, window=window, sha256=content.sha256)


def _read_file(path: str, offset: int, length: int, context: ToolContext) -> FileContent:
    found = context.files.read(path, offset=offset, length=length)
    if isinstance(found, FileRefused):
        raise ReadRefused(found)
    return found


def _open_output(path: str, context: ToolContext) -> Readable | FileRefused:
    output = context.find_output(path.removeprefix(OUTPUT_ADDRESS))
    if output is None:
        return FileRefused(error=FileError.NOT_FOUND, path=path, message="this session has no such output")
    first = output.read(0, _OUTPUT_WINDOW)
    if context.redactor is not None:
        return _cleaned(first, output.size, context, is_output=True)
    return Readable(first, output.size, output.read, window=_OUTPUT_WINDOW, is_output=True)


def _cleaned(
    data: bytes, size: int, context: ToolContext, *, sha256: str | None = None, is_output: bool = False
) -> Readable:
    """The beginning only, whole in memory: a page that begins inside a secret would show its end."""
    is_cut = len(data) < size
    text = codecs.getincrementaldecoder("utf-8")("replace" if is_output else "strict").decode(data, final=not is_cut)
    clean = context.clean(text, is_cut=is_cut).encode()
    window = max(1, len(clean))
    return Readable(clean, len(clean), lambda _offset, _length: b"", window=window, sha256=sha256, is_cut=is_cut)
