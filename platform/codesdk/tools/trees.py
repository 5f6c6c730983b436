"""Directory trees as tar archives, as HTTP requests move them: regular files and directories only.

An archive is untrusted. All entries are checked before the first is written, and every path, in and out, against the
same rules as a call that names it. Links and special files are left out of downloads and refused in uploads, so that no
name in a tree leads elsewhere.
"""

from __future__ import annotations

import io
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from codesdk.domain.tool_results import ToolResult
from codesdk.sandbox.port import FileError, FileInfo, FileKind, FileRefused, FileWrite, spell, unspell
from codesdk.sandbox.runner.workspace.archive import EntryValidator
from codesdk.sandbox.runner.workspace.root import OperationRefused
from codesdk.tools.context import Attachment, StoredOutput, ToolContext, file_error_result
from codesdk.tools.raw_bytes import copy_bytes, raw_structured

MAX_ENTRIES = 20_000
"""Entries of a tree: each is decided by policy."""
MAX_NAMED = 100
"""Paths that a result names."""
_DEPTH = 32
_PAGE = 2000
_BLOCK = tarfile.BLOCKSIZE
_WINDOW = 1024 * 1024
_BATCH_BYTES = 8 * 1024 * 1024
"""Bytes that are held at once: of the files of one request, and of an extended header."""
_BATCH_FILES = 256


class _Refused(Exception):
    """The tree can't be moved; `result` says why."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__(result.text)
        self.result = result


def read_tree(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """A directory and all beneath it as an artifact. What could not be read by its own path is left out."""
    path = given["path"]
    try:
        prefix, entries, left_out = _find_entries(given, context)
    except _Refused as error:
        return error.result
    size = 0

    def fill(write: Callable[[bytes], object]) -> FileRefused | None:
        def add(data: bytes) -> None:
            nonlocal size
            size += len(data)
            write(data)

        for entry in entries:
            if (refused := _pack(entry, prefix, context, add)) is not None:
                return refused
        add(bytes(2 * _BLOCK))
        return None

    refused = context.keep_stream(Attachment("tree.tar", "application/x-tar", b""), fill)
    if refused is not None:
        return file_error_result(refused)
    raw = {
        "offset": 0,
        "bytes": size,
        "size": size,
        "entries": len(entries),
        "left_out": len(left_out),
        "left_out_paths": left_out[:MAX_NAMED],
    }
    structured = raw_structured(path, raw, truncated=bool(left_out))
    note = f" Left out: {', '.join(left_out[:MAX_NAMED])}." if left_out else ""
    return ToolResult(text=f"Packed {len(entries)} entries of {path} ({size} bytes).{note}", structured=structured)


def _find_entries(given: dict[str, Any], context: ToolContext) -> tuple[str, list[FileInfo], list[str]]:
    """The prefix of all paths; the files and directories that may be read; and the paths of the others."""
    path = given["path"]
    top = context.files.stat(path)
    if isinstance(top, FileRefused):
        raise _Refused(file_error_result(top))
    if top.kind is not FileKind.DIRECTORY:
        text = f"{path} is no directory."
        raise _Refused(ToolResult(text=text, is_error=True, code=FileError.NOT_A_DIRECTORY.value))
    found: list[FileInfo] = []
    while True:
        page = context.files.list(path, depth=_DEPTH, limit=_PAGE, offset=len(found))
        if isinstance(page, FileRefused):
            raise _Refused(file_error_result(page))
        found += page.entries
        if page.unscanned or page.total > MAX_ENTRIES:
            text = f"{path} has more than {MAX_ENTRIES} entries; read its directories one by one."
            raise _Refused(ToolResult(text=text, is_error=True, code=FileError.TOO_LARGE.value))
        if not page.entries or len(found) >= page.total:
            break
    prefix = "" if top.path in ("", ".") else f"{top.path}/"
    level = prefix.count("/")
    kept: list[FileInfo] = []
    left_out: list[str] = []
    for entry in found:
        deep = entry.kind is FileKind.DIRECTORY and entry.path.count("/") - level + 1 >= _DEPTH
        is_kept = not deep and entry.kind in (FileKind.FILE, FileKind.DIRECTORY)
        is_kept = is_kept and context.transfers.covers({**given, "path": entry.path})
        (kept.append(entry) if is_kept else left_out.append(entry.path))
    return prefix, kept, left_out


def _pack(entry: FileInfo, prefix: str, context: ToolContext, add: Callable[[bytes], object]) -> FileRefused | None:
    header = tarfile.TarInfo(unspell(entry.path.removeprefix(prefix)))
    header.mode, header.mtime = entry.mode & 0o777, int(entry.mtime)
    if entry.kind is FileKind.DIRECTORY:
        header.type = tarfile.DIRTYPE
        add(_encode(header))
        return None
    header.size = entry.size
    add(_encode(header))
    if (refused := copy_bytes(entry.path, add, context, size=entry.size)) is not None:
        return refused
    add(bytes(-entry.size % _BLOCK))
    return None


def _encode(header: tarfile.TarInfo) -> bytes:
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


class _Entry(NamedTuple):
    member: tarfile.TarInfo
    path: str


def write_tree(given: dict[str, Any], context: ToolContext) -> ToolResult:
    """Unpack an archive that was uploaded below a directory. If an entry is refused, nothing is written."""
    upload = given["upload"]
    archive = context.transfers.find_upload(upload["sha256"])
    if archive is None:
        text = f"{given['path']} was not written: the session has no such upload any more. Send it again."
        return ToolResult(text=text, is_error=True, code="UPLOAD_GONE")
    try:
        with tarfile.open(fileobj=_Archive(archive), mode="r:") as tar:
            entries = [*_checked(tar, given, context)]
            return _unpack(tar, entries, given, context)
    except _Refused as refused:
        return refused.result
    except OperationRefused as refused:
        return _archive_refused(refused.message)
    except (tarfile.TarError, EOFError, ValueError) as error:
        return _archive_refused(f"it is not a readable tar: {error}")


def _checked(tar: tarfile.TarFile, given: dict[str, Any], context: ToolContext) -> Iterator[_Entry]:
    most = context.profile.file_bytes
    validator = EntryValidator(context.profile.workspace)
    for member in tar:
        name = spell(validator.validate(member))
        if name == ".":
            continue
        if not (member.isreg() or member.isdir()):
            raise _Refused(_archive_refused(f"entry {name!r} is neither a file nor a directory"))
        if validator.count > MAX_ENTRIES:
            raise _Refused(_archive_refused(f"it has more than {MAX_ENTRIES} entries"))
        path = posixpath.normpath(posixpath.join(given["path"], name))
        if most and member.size > most:
            text = f"{path} would have {member.size} bytes; this call may write {most} to a file."
            raise _Refused(ToolResult(text=text, is_error=True, code=FileError.TOO_LARGE.value))
        if not context.transfers.covers({**given, "path": path}):
            text = f"Nothing was written: policy does not let this call write {path}."
            raise _Refused(ToolResult(text=text, is_error=True, code="TREE_DENIED"))
        yield _Entry(member, path)


def _unpack(tar: tarfile.TarFile, entries: list[_Entry], given: dict[str, Any], context: ToolContext) -> ToolResult:
    # No request of these is undone: from the first on the call has changed something, so it is not cancelled any more.
    files = context.sandbox.files
    batch: dict[str, FileWrite] = {}
    written = total = held = 0

    def flush() -> None:
        nonlocal held
        done = files.write(tuple(batch.values())) if batch else ()
        if isinstance(done, FileRefused):
            refused(done)
        batch.clear()
        held = 0

    def refused(why: FileRefused) -> None:
        result = file_error_result(why)
        note = f"{result.text} Of the tree, {written - len(batch)} files were written before."
        raise _Refused(result.model_copy(update={"text": note}))

    for member, path in entries:
        if member.isdir():
            made = files.make_directory(path)
            if isinstance(made, FileRefused):
                refused(made)
            continue
        content = tar.extractfile(member)
        assert content is not None  # noqa: S101 (regular files have some)
        item = FileWrite(path=path, content=b"", mode=member.mode & 0o777 | 0o600)
        item = context.require_previewed_content(item)
        if held + member.size > _BATCH_BYTES or len(batch) >= _BATCH_FILES or path in batch:
            flush()
        if member.size > _BATCH_BYTES:
            pieces = iter(partial(content.read, _WINDOW), b"")
            done = files.upload(path, pieces, if_sha256=item.if_sha256, mode=item.mode)
            if isinstance(done, FileRefused):
                refused(done)
        else:
            batch[path] = item.model_copy(update={"content": content.read()})
            held += member.size
        written, total = written + 1, total + member.size
    flush()
    path, sha256 = given["path"], given["upload"]["sha256"]
    structured = {"path": path, "bytes": total, "created": False, "sha256": sha256, "entries": len(entries)}
    return ToolResult(text=f"Unpacked {len(entries)} entries below {path} ({total} bytes).", structured=structured)


def _archive_refused(reason: str) -> ToolResult:
    return ToolResult(text=f"Nothing was written: {reason}.", is_error=True, code="ARCHIVE_REFUSED")


class _Stored(io.RawIOBase):
    """An artifact as a seekable file."""

    def __init__(self, stored: StoredOutput) -> None:
        self._stored = stored
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._stored.size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, target: Any) -> int:
        data = self._stored.read(self._at, len(target))
        target[: len(data)] = data
        self._at += len(data)
        return len(data)


class _Archive(io.BufferedReader):
    """An archive whose headers take bounded memory: tarfile reads an extended header at once, however long it says it is."""

    def __init__(self, stored: StoredOutput) -> None:
        super().__init__(_Stored(stored), _WINDOW)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0 or size > _BATCH_BYTES:
            raise tarfile.ReadError("a header is too long")
        return super().read(size)
