"""Serves file requests on threads with the tool's effective ids and no capabilities."""

from __future__ import annotations

import _thread
import os

from codesdk.sandbox.runner import kernel
from codesdk.sandbox.runner.event_loop import EventLoop, SerialExecutor
from codesdk.sandbox.runner.protocol import wire
from codesdk.sandbox.runner.workspace import files
from codesdk.sandbox.runner.workspace.names import unspell
from codesdk.sandbox.runner.workspace.root import OperationRefused, Root, catch_errors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from codesdk.sandbox.runner.execution.exec_lifecycle import Key
    from codesdk.sandbox.runner.protocol.wire import Message
    from codesdk.sandbox.runner.workspace.upload import Uploads

    Header = dict[str, Any]
    Operation = Callable[[Header, bytes], tuple[Header, bytes]]
    Answer = Callable[[Header, bytes], None]


_LONG_OPERATIONS = frozenset(("import", "delete", "manifest", "marks"))
_GIT_CONFIG = "[user]\n\tname = CodeSDK agent\n\temail = agent@codesdk.invalid\n"
"""Git's configuration for the tool's user. A repository's own and `git config --global` have the last word, unlike with
variables. (RFC 2606 reserves `.invalid`.)"""


class _Job:
    """A call's file operation."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.is_stopped = False
        self._claim = _thread.allocate_lock()

    def claim(self) -> bool:
        """Claim the job for the thread that runs it or for a cancel. Returns True for the first caller only."""
        return self._claim.acquire(False)


class FileService:
    """Runs file operations in order: short ones on one thread, long ones on another."""

    def __init__(self, loop: EventLoop, settings: dict[str, Any], take_tool_ids: Callable[[], None]) -> None:
        self._loop = loop
        self._settings = settings
        self._uid = int(settings["uid"])
        self._mode = str(settings.get("workspace_mode", "rw"))
        self._take_tool_ids = take_tool_ids
        self.check: Callable[[str], None] = lambda _: None
        """Called with the name of each operation before it runs; may refuse it."""
        self._root: Root | None = None
        self._short_executor = SerialExecutor("files", loop, self._begin)
        self._long_executor: SerialExecutor | None = None
        self.operations: dict[str, Operation] = {
            "read": self._read, "write": self._write, "list": self._list, "stat": self._stat, "import": self._import,
            "mkdir": self._make_directory, "move": self._move, "delete": self._delete, "manifest": self._manifest,
            "upload.open": self._upload, "upload.append": self._append, "upload.commit": self._commit,
            "upload.abort": self._abort, "marks": self._marks,
        }  # fmt: skip
        self._uploads: Uploads | None = None
        self._jobs: dict[Key, _Job] = {}
        """Pending operations by call; a call has one at a time."""

    def _begin(self) -> None:
        self._take_tool_ids()
        self._root = Root(self._settings["workspace"], bool(self._settings.get("openat2", True)))
        try:
            home = self._settings["env"]["HOME"]
            os.mkdir(home, 0o700)
            with open(home + "/.gitconfig", "x") as file:
                file.write(_GIT_CONFIG)
        except OSError:
            pass  # it exists, or its parent is read-only; then tools have a HOME that they can't write

    def serve(self, message: Message, answer: Answer) -> None:
        """Run an operation and answer."""
        name = str(message.header["op"])
        key, job = _key(message.header), _Job(answer)
        if key[0]:
            self._jobs[key] = job

        def work() -> Callable[[], None]:
            if not job.claim():
                return lambda: None
            header, body = self._run(self.operations[name], message)
            return lambda: self._finish(key, job, header, body)

        (self.long_executor() if name in _LONG_OPERATIONS else self._short_executor).submit(work)

    def _finish(self, key: Key, job: _Job, header: Header, body: bytes) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]
        job.answer(header, body)

    def cancel_pending(self, key: Key) -> bool:
        """Cancel a call's queued operation. Returns False if there is none or if it is already running."""
        job = self._jobs.get(key)
        if job is None:
            return False
        job.is_stopped = True
        if not job.claim():
            return False
        self._finish(key, job, {"error": "WITHDRAWN", "message": "its call was cancelled before it began"}, b"")
        return True

    def long_executor(self) -> SerialExecutor:
        """Return the thread for long operations; starts it on first use."""
        if self._long_executor is None:
            self._long_executor = SerialExecutor("long", self._loop, self._take_tool_ids)
        return self._long_executor

    def _run(self, operation: Operation, message: Message) -> tuple[Header, bytes]:
        body = b""

        def work() -> Header:
            nonlocal body
            self.workspace().ensure_accessible()
            self.check(str(message.header["op"]))
            given: Header = dict(message.header)
            given.update((field, unspell(given[field])) for field in ("path", "target") if field in given)
            header, body = operation(given, message.body)
            return header

        header = catch_errors(work)
        if "refused" in header:
            header["path"] = header["path"] or message.header.get("path", "")
        return header, body

    def workspace(self) -> Root:
        """Return the open workspace."""
        if self._root is None:
            raise RuntimeError("the file thread has not begun")
        return self._root

    def _read(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        limit = int(self._settings["max_read_bytes"])
        length = header.get("length")
        wanted = limit if length is None else min(int(length), limit)
        version = header.get("version")
        info, data = files.read(self.workspace(), header["path"], int(header["offset"]), wanted, version)
        return {"content": info}, data

    def _stat(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        return {"info": files.status(self.workspace(), header["path"])}, b""

    def _list(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        from codesdk.sandbox.runner.workspace import listing  # noqa: PLC0415 - loaded where it is asked for

        page = listing.list_entries(
            self.workspace(),
            header["path"],
            int(header["depth"]),
            int(header["limit"]),
            int(header.get("offset", 0)),
            str(header.get("glob", "")),
        )
        return {"total": page.total, "unscanned": page.unscanned}, wire.dump_json(page.entries)

    def _write(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        size = int(header["spec_bytes"])
        place = size
        writes: list[files.Write] = []
        for item in wire.load_json(body[:size]):
            content = None
            if item["bytes"] is not None:
                content = body[place : place + item["bytes"]]
                place += item["bytes"]
            writes.append(files.Write(unspell(item["path"]), content, item["expect"], item["mode"]))
        infos = files.write(self.workspace(), writes, int(self._settings["limits"].get("fsize", 0)))
        return {}, wire.dump_json(infos)

    def _make_directory(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        return {"info": _directory_operations().make_directory(self.workspace(), header["path"])}, b""

    def _move(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        info = _directory_operations().move(
            self.workspace(), header["path"], header["target"], bool(header.get("replace"))
        )
        return {"info": info}, b""

    def _delete(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        job = self._jobs.get(_key(header))
        recursive = bool(header.get("recursive"))
        count = _directory_operations().delete(
            self.workspace(), header["path"], recursive, lambda: job is not None and job.is_stopped
        )
        return {"deleted": count}, b""

    def _manifest(self, _header: Header, _body: bytes) -> tuple[Header, bytes]:
        from codesdk.sandbox.runner.workspace import manifest  # noqa: PLC0415 - loaded where it is asked for

        return {}, wire.dump_json(manifest.build_manifest(self.workspace()))

    def _marks(self, _header: Header, body: bytes) -> tuple[Header, bytes]:
        from codesdk.sandbox.runner.workspace import fingerprints  # noqa: PLC0415 - loaded where it is asked for

        home = str(self._settings["env"]["HOME"])
        return {}, wire.dump_json(fingerprints.fingerprint_files(self.workspace(), wire.load_json(body), home))

    def _get_uploads(self) -> Uploads:
        if self._uploads is None:
            from codesdk.sandbox.runner.workspace.upload import Uploads  # noqa: PLC0415 - loaded where it is asked for

            self._uploads = Uploads(int(self._settings["limits"].get("fsize", 0)))
        return self._uploads

    def _upload(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        item = files.Write(header["path"], b"", header.get("expect"), header.get("mode"))
        return {"id": self._get_uploads().begin(self.workspace(), item)}, b""

    def _append(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        return {"size": self._get_uploads().append(header["id"], int(header["offset"]), body)}, b""

    def _commit(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        return {"info": self._get_uploads().commit(header["id"], header["sha256"])}, b""

    def _abort(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        self._get_uploads().abort(header["id"])
        return {}, b""

    def _import(self, _: Header, body: bytes) -> tuple[Header, bytes]:
        from codesdk.sandbox.runner.workspace import archive  # noqa: PLC0415 - tarfile costs every idle sandbox half a megabyte

        if self._mode == "rw":
            return {"files": archive.unpack(self.workspace(), body)}, b""
        if self._mode == "none":
            raise OperationRefused("PERMISSION_DENIED", "this sandbox has no workspace")
        # Tools only read this workspace, so they can't own it; and root must not unpack an untrusted archive.
        self._become(kernel.SEED_UID, kernel.SEED_UID)
        try:
            return {"files": archive.unpack(self.workspace(), body, readable=True)}, b""
        finally:
            self._become(self._uid, int(self._settings["gid"]))

    @staticmethod
    def _become(uid: int, gid: int) -> None:
        """Set this thread's effective ids; it is root in between, which changing the group requires."""
        kernel.set_thread_uids(-1, 0, -1)
        kernel.set_thread_gids(-1, gid, -1)
        kernel.set_thread_uids(-1, uid, -1)


def _key(header: Header) -> Key:
    """Return the call and attempt of a request; the call is empty if it has none."""
    return str(header.get("call", "")), int(header.get("attempt", 0))


def _directory_operations() -> Any:
    from codesdk.sandbox.runner.workspace import directory_operations  # noqa: PLC0415 - loaded where it is asked for

    return directory_operations
