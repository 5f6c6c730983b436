"""HTTP/1 bodies: forwards exactly the bytes inside the framing. Pure."""

from __future__ import annotations

import re

from codesdk.sandbox.egress.http_head import BadHead, Framing

_SIZE = re.compile(rb"[0-9A-Fa-f]{1,8}")
_MAX_LINE = 10
"""Bytes of a chunk-size line, with its line end."""


class Body:
    """Incremental reader of one body; `over` once it is complete."""

    def __init__(self, framing: Framing, *, drop_surplus: bool = False) -> None:
        """`framing`: with a length, or chunked. `drop_surplus`: ignore bytes after the end, as for a response."""
        self._drop_surplus = drop_surplus
        self.over = framing.length == 0 and not framing.chunked
        self._left = framing.length or 0
        self._chunked = framing.chunked
        self._state = "size" if framing.chunked else "data"
        self._line = bytearray()
        self._last = False

    def feed(self, data: bytes) -> bytes:
        """The bytes to forward.

        Raises:
            BadHead: bytes after the end (a second request), or invalid chunks, including chunk extensions and trailers.
        """
        out = bytearray()
        view = memoryview(data)
        while view:
            if self.over:
                if self._drop_surplus:
                    break
                raise BadHead("bytes after the end of the body")
            view = self._data(view, out) if self._state == "data" else self._framing(view, out)
        return bytes(out)

    def _data(self, view: memoryview, out: bytearray) -> memoryview:
        part = view[: self._left]
        out += part
        self._left -= len(part)
        if self._left == 0:
            if self._chunked:
                self._state = "end"
            else:
                self.over = True
        return view[len(part) :]

    def _framing(self, view: memoryview, out: bytearray) -> memoryview:
        self._line += view[:1]
        if self._line.endswith(b"\n"):
            self._on_line(bytes(self._line), out)
            self._line.clear()
        elif len(self._line) > _MAX_LINE:
            raise BadHead("a chunk without a size, or with an extension")
        return view[1:]

    def _on_line(self, line: bytes, out: bytearray) -> None:
        if not line.endswith(b"\r\n"):
            raise BadHead("a line of the chunked body without its CR")
        text = line[:-2]
        if self._state == "end":
            if text:
                raise BadHead("a chunk longer than its size, or a trailer")
            self.over = self._last
            self._state = "size"
        elif not _SIZE.fullmatch(text):
            raise BadHead("a chunk without a size, or with an extension")
        else:
            self._left = int(text, 16)
            self._last = self._left == 0
            self._state = "end" if self._last else "data"
        out += line
