"""What a worker may ask about files, and the threads that do it: with the tool's effective ids, and so no capability."""

from __future__ import annotations

import os

from codesdk.sandbox.runner import codec, files, kernel
from codesdk.sandbox.runner.beneath import Refused, Root, refusal
from codesdk.sandbox.runner.loop import Hand, Loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

    from codesdk.sandbox.runner.wire import Message

    Header = dict[str, Any]
    Operation = Callable[[Header, bytes], tuple[Header, bytes]]
    Answer = Callable[[Header, bytes], None]


class Shelf:
    """The workspace's operations. Short ones are done by one thread, one after the other; long ones by another."""

    def __init__(self, loop: Loop, settings: dict[str, Any], take_tool_ids: Callable[[], None]) -> None:
        self._loop = loop
        self._settings = settings
        self._uid = int(settings["uid"])
        self._mode = str(settings.get("workspace_mode", "rw"))
        self._take_tool_ids = take_tool_ids
        self._root: Root | None = None
        self._short = Hand("files", loop, self._begin)
        self._long: Hand | None = None
        self.operations: dict[str, Operation] = {
            "read": self._read, "write": self._write, "list": self._list, "stat": self._stat, "import": self._import,
        }  # fmt: skip
        self._are_long = {"import"}

    def _begin(self) -> None:
        self._take_tool_ids()
        self._root = Root(self._settings["workspace"], bool(self._settings.get("openat2", True)))
        try:
            os.mkdir(self._settings["env"]["HOME"], 0o700)
        except OSError:
            pass  # it is there, or its parent is read-only: tools then see a HOME that they cannot write

    def restart(self) -> None:
        """Another connection."""

    def serve(self, message: Message, answer: Answer) -> None:
        """Do one operation and answer."""
        name = str(message.header["op"])

        def work() -> Callable[[], None]:
            header, body = self._guarded(self.operations[name], message)
            return lambda: answer(header, body)

        self._hand(name in self._are_long).submit(work)

    def _hand(self, is_long: bool) -> Hand:
        if not is_long:
            return self._short
        if self._long is None:
            self._long = Hand("long", self._loop, self._take_tool_ids)
        return self._long

    def _guarded(self, operation: Operation, message: Message) -> tuple[Header, bytes]:
        """Whatever goes wrong is an answer, and the thread lives on."""
        try:
            self._workspace.mend()
            return operation(message.header, message.body)
        except Refused as refused:
            path = getattr(refused, "path", message.header.get("path", ""))
            return {"refused": refused.error, "path": path, "message": refused.message}, b""
        except OSError as error:
            why = refusal(error)
            return {"refused": why.error, "path": message.header.get("path", ""), "message": why.message}, b""
        except (LookupError, TypeError, ValueError, RecursionError, MemoryError) as error:
            return {"error": "BAD_REQUEST", "message": repr(error)}, b""

    @property
    def _workspace(self) -> Root:
        if self._root is None:
            raise RuntimeError("the file thread has not begun")
        return self._root

    def _read(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        limit = int(self._settings["max_read_bytes"])
        length = header.get("length")
        wanted = limit if length is None else min(int(length), limit)
        info, data = files.read(self._workspace, header["path"], int(header["offset"]), wanted)
        return {"content": info}, data

    def _stat(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        return {"info": files.status(self._workspace, header["path"])}, b""

    def _list(self, header: Header, _: bytes) -> tuple[Header, bytes]:
        entries, cut = files.listing(self._workspace, header["path"], int(header["depth"]), int(header["limit"]))
        return {"truncated": cut}, codec.dump(entries)

    def _write(self, header: Header, body: bytes) -> tuple[Header, bytes]:
        size = int(header["spec_bytes"])
        place = size
        writes: list[files.Write] = []
        for item in codec.load(body[:size]):
            content = None
            if item["bytes"] is not None:
                content = body[place : place + item["bytes"]]
                place += item["bytes"]
            writes.append(files.Write(item["path"], content, item["expect"], item["mode"]))
        infos = files.write(self._workspace, writes, int(self._settings["limits"].get("fsize", 0)))
        return {}, codec.dump(infos)

    def _import(self, _: Header, body: bytes) -> tuple[Header, bytes]:
        from codesdk.sandbox.runner import archive  # noqa: PLC0415 - tarfile costs every idle sandbox half a megabyte

        if self._mode == "rw":
            return {"files": archive.unpack(self._workspace, body)}, b""
        if self._mode == "none":
            raise Refused("PERMISSION_DENIED", "this sandbox has no workspace")
        # No tool can write there, so nothing can be swapped beneath root's hands.
        kernel.set_thread_uids(-1, 0, -1)
        try:
            return {"files": archive.unpack(self._workspace, body, readable=True)}, b""
        finally:
            kernel.set_thread_uids(-1, self._uid, -1)
