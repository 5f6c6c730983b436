"""`Files` of a sandbox, implemented by runner requests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter

from codesdk.sandbox.channel.connection import Header, SendRequest
from codesdk.sandbox.channel.execs import reject_malformed
from codesdk.sandbox.port import (
    Change,
    Changes,
    FileContent,
    FileError,
    FileFingerprint,
    FileInfo,
    FileKind,
    FileRefused,
    FileWrite,
    Listing,
    Manifest,
    ManifestEntry,
    NamedPath,
    Watch,
)
from codesdk.sandbox.port.faults import RunnerRefused
from codesdk.sandbox.runner.protocol import wire

_INFOS = TypeAdapter(tuple[FileInfo, ...])
_BATCH_BYTES = wire.MAX_MESSAGE - 2 * 1024 * 1024


PIECE_BYTES = 1024 * 1024
"""Bytes of a large file or archive per message."""
LONG_TIMEOUT_S = 300.0
"""Request timeout of operations on the whole workspace, in seconds."""
LONGEST_WAIT_S = 20.0
"""Longest wait for changes, in seconds."""
_FINGERPRINT_FIELDS = ("kind", "real", "sha256", "size")
_MANIFEST_FIELDS = ("path", "kind", "mode", "size", "mtime_ns", "mark")


class RunnerFiles:
    """Files in the workspace, with the tool user's rights."""

    def __init__(self, send: SendRequest, resolve: Callable[[str], str]) -> None:
        """`resolve`: maps a path that a caller names to the runner's."""
        self._send = send
        self._resolve = resolve

    def _request(self, header: Header, body: bytes = b"", **options: Any) -> tuple[Header, bytes]:
        resolved: Header = {name: self._resolve(header[name]) for name in ("path", "target") if name in header}
        return self._send({**header, **resolved}, body, **options)

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Bytes of a file; see the port."""
        answer, data = self._request({"op": "read", "path": path, "offset": offset, "length": length}, repeat=True)
        if refused := _refused(answer):
            return refused
        content = _object_field(answer, "content")
        content.pop("version", None)
        with reject_malformed("file"):
            return FileContent(data=data, **content)

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """A batch of files; see the port."""
        contents = [write.content or b"" for write in writes]
        if sum(map(len, contents)) > _BATCH_BYTES:
            path = max(writes, key=lambda write: len(write.content or b"")).path
            return FileRefused(
                error=FileError.TOO_LARGE,
                path=path,
                message=f"a batch may hold {_BATCH_BYTES} bytes at most; write it in parts",
            )
        items = [
            {
                "path": self._resolve(write.path),
                "bytes": None if write.content is None else len(write.content),
                "expect": write.if_sha256,
                "mode": write.mode,
            }
            for write in writes
        ]
        spec = json.dumps(items).encode()
        answer, data = self._request({"op": "write", "spec_bytes": len(spec)}, spec + b"".join(contents))
        with reject_malformed("answer about a batch"):
            return _refused(answer) or _INFOS.validate_json(data)

    def list(
        self, path: str, *, depth: int = 1, limit: int = 1000, offset: int = 0, glob: str = ""
    ) -> Listing | FileRefused:
        """Entries of a directory; see the port."""
        header = {"op": "list", "path": path, "depth": depth, "limit": limit, "offset": offset, "glob": glob}
        answer, data = self._request(header, repeat=True)
        with reject_malformed("listing"):
            return _refused(answer) or Listing(
                entries=_INFOS.validate_json(data), offset=offset, total=answer["total"], unscanned=answer["unscanned"]
            )

    def stat(self, path: str) -> FileInfo | FileRefused:
        """One entry; see the port."""
        answer, _ = self._request({"op": "stat", "path": path}, repeat=True)
        return _refused(answer) or _info(answer)

    def make_directory(self, path: str) -> FileInfo | FileRefused:
        """A directory; see the port."""
        answer, _ = self._request({"op": "mkdir", "path": path}, repeat=True)
        return _refused(answer) or _info(answer)

    def move(self, path: str, target: str, *, replace: bool = False) -> FileInfo | FileRefused:
        """Rename within the workspace; see the port."""
        answer, _ = self._request({"op": "move", "path": path, "target": target, "replace": replace})
        return _refused(answer) or _info(answer)

    def delete(self, path: str, *, recursive: bool = False) -> int | FileRefused:
        """Delete an entry; see the port."""
        answer, _ = self._request({"op": "delete", "path": path, "recursive": recursive}, timeout_s=LONG_TIMEOUT_S)
        with reject_malformed("answer about a deletion"):
            return _refused(answer) or int(answer["deleted"])

    def upload(
        self, path: str, pieces: Iterable[bytes], *, if_sha256: str | None = None, mode: int | None = None
    ) -> FileInfo | FileRefused:
        """A file of any size; see the port."""
        answer, _ = self._request({"op": "upload.open", "path": path, "expect": if_sha256, "mode": mode})
        if refused := _refused(answer):
            return refused
        identity, size, digest = str(answer.get("id")), 0, hashlib.sha256()
        is_over = False
        try:
            for whole in pieces:
                for piece in split_pieces(whole):
                    digest.update(piece)
                    # With its offset it may be repeated: what was written is not written again.
                    header = {"op": "upload.append", "id": identity, "offset": size, "path": path}
                    answer, _ = self._request(header, piece, repeat=True)
                    if refused := _refused(answer):
                        return refused
                    size += len(piece)
            header = {"op": "upload.commit", "id": identity, "path": path, "sha256": f"sha256:{digest.hexdigest()}"}
            is_over = True  # a commit ends the upload, whatever it answers
            answer, _ = self._request(header, timeout_s=LONG_TIMEOUT_S)
            return _refused(answer) or _info(answer)
        finally:
            if not is_over:
                self._request({"op": "upload.abort", "id": identity}, repeat=True)

    def download(
        self, path: str, take: Callable[[bytes], object], *, offset: int = 0, length: int | None = None
    ) -> FileInfo | FileRefused:
        """A file of any size; see the port."""
        version = None
        end = None if length is None else offset + length
        while True:
            wanted = PIECE_BYTES if end is None else min(PIECE_BYTES, end - offset)
            header = {"op": "read", "path": path, "offset": offset, "length": wanted, "version": version}
            answer, data = self._request(header, repeat=True)
            if refused := _refused(answer):
                return refused
            version = _object_field(answer, "content").get("version")
            if not data:
                break
            take(data)
            offset += len(data)
        info = self.stat(path)
        if end is None and isinstance(info, FileInfo) and info.kind is FileKind.FILE and info.size != offset:
            return FileRefused(error=FileError.CONFLICT, path=path, message="the file has changed while it was read")
        return info

    def watch(self, path: str = ".") -> Watch | FileRefused:
        """Begin a watch; see the port."""
        answer, _ = self._request({"op": "watch.open", "path": path}, timeout_s=LONG_TIMEOUT_S)
        if refused := _refused(answer):
            return refused
        with reject_malformed("watch"):
            return Watch.model_validate({name: answer.get(name) for name in Watch.model_fields})

    def changes(self, watch: str, after: int = 0, *, limit: int = 1000, wait_s: float = 0.0) -> Changes | FileRefused:
        """What has changed; see the port."""
        header = {
            "op": "watch.read",
            "id": watch,
            "after": after,
            "limit": limit,
            "wait_s": min(wait_s, LONGEST_WAIT_S),
        }
        # With its number it may be repeated: nothing is forgotten before it is named as read.
        answer, data = self._request(header, repeat=True)
        if refused := _refused(answer):
            return refused
        with reject_malformed("list of changes"):
            rows = [Change(kind=kind, path=path, source=source or None) for kind, path, source in json.loads(data)]
            return Changes(changes=tuple(rows), next=answer.get("next"), over=answer.get("over"))

    def unwatch(self, watch: str) -> bool:
        """End a watch; see the port."""
        answer, _ = self._request({"op": "watch.close", "id": watch}, repeat=True)
        return answer.get("ended") is True

    def marks(self, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...] | FileRefused:
        """What each name leads to; see the port."""
        body = json.dumps([[self._resolve(name.path), self._resolve(name.cwd)] for name in names]).encode()
        answer, data = self._request({"op": "marks"}, body, timeout_s=LONG_TIMEOUT_S, repeat=True)
        if refused := _refused(answer):
            return refused
        with reject_malformed("answer about named files"):
            found = zip(names, json.loads(data), strict=True)
            return tuple(
                FileFingerprint(path=name.path, cwd=name.cwd, **dict(zip(_FINGERPRINT_FIELDS, mark, strict=True)))
                for name, mark in found
            )

    def manifest(self) -> Manifest | FileRefused:
        """Every entry with its digest; see the port."""
        answer, data = self._request({"op": "manifest"}, timeout_s=LONG_TIMEOUT_S, repeat=True)
        if refused := _refused(answer):
            return refused
        with reject_malformed("manifest"):
            rows = json.loads(data)
            entries = [ManifestEntry.model_validate(dict(zip(_MANIFEST_FIELDS, row, strict=True))) for row in rows]
        return Manifest(entries=tuple(sorted(entries, key=lambda entry: entry.path)))


def split_pieces(whole: bytes) -> Iterator[bytes]:
    """Split into pieces small enough not to hold up a cancel."""
    view = memoryview(whole)
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def _refused(answer: dict[str, Any]) -> FileRefused | None:
    if "error" in answer:
        raise RunnerRefused(f"The runner refused a file operation: {answer}")
    if "refused" not in answer:
        return None
    with reject_malformed("refusal"):
        return FileRefused(error=FileError(answer["refused"]), path=str(answer["path"]), message=str(answer["message"]))


def _info(answer: dict[str, Any]) -> FileInfo:
    with reject_malformed("answer about a file"):
        return FileInfo.model_validate(answer["info"])


def _object_field(answer: dict[str, Any], name: str) -> dict[str, Any]:
    found = answer.get(name)
    if not isinstance(found, dict):
        raise RunnerRefused(f"The runner's answer has no {name}: {answer}")
    return found
