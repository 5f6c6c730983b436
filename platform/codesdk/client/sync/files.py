# Generated from codesdk.client.aio by scripts/sync_client.py. Do not edit.
"""The files of a session's workspace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2

from codesdk.client.exchange import json_of
from codesdk.client.local_tree import pack_tree, unpack_tree
from codesdk.client.models import Call, FileEntry, FileStatus, WrittenFile
from codesdk.client.requests import IDEMPOTENCY_KEY, Request
from codesdk.client.sync.concurrency import in_thread
from codesdk.client.sync.transport import Transport

WaitForCall = Callable[[str], Call]


class Files:
    """Reads and writes files in the sandbox. Each method is a tool call: policy decides it, and it is on record.

    All raise ApiError: `PermissionDeniedError` if the call is denied, `NotFoundError` if there is no such file. A call that
    needs approval waits for it. Contents pass through memory.
    """

    def __init__(self, transport: Transport, session: str, wait: WaitForCall) -> None:
        """`wait`: waits for the end of a call, and answers its approval."""
        self._transport = transport
        self._path = f"/v1/sessions/{session}/files"
        self._wait = wait

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """A file's bytes, or `length` of them from `offset` on."""
        headers = {}
        if offset or length is not None:
            end = "" if length is None else str(offset + length - 1)
            headers = {"Range": f"bytes={offset}-{end}"}
        return (self._exchange("GET", "", {"path": path}, headers=headers)).content

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        """A file's text."""
        return (self.read(path)).decode(encoding)

    def write(
        self, path: str, content: bytes | str, *, if_absent: bool = False, if_match: str | None = None
    ) -> WrittenFile:
        """Write a whole file. Missing directories are created.

        Args:
            path: in the workspace.
            content: text is written as UTF-8.
            if_absent: refuse it if the file exists.
            if_match: refuse it unless the file still has this hash, `WrittenFile.sha256` of an earlier write.
        """
        body = content.encode() if isinstance(content, str) else content
        headers = {"Content-Type": "application/octet-stream"}
        headers |= {"If-None-Match": "*"} if if_absent else {}
        headers |= {"If-Match": f'"{if_match}"'} if if_match else {}
        response = self._exchange("PUT", "", {"path": path}, headers=headers, content=body)
        return WrittenFile.model_validate(json_of(response))

    def list(self, path: str = ".", *, depth: int | None = None, glob: str | None = None) -> list[FileEntry]:
        """All entries below a directory, level by level. `depth`: levels, 1 if None; `glob`: a pattern of names."""
        asked = {"path": path, "depth": depth, "glob": glob}
        params: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        found: list[FileEntry] = []
        while True:
            page = json_of(self._exchange("GET", "/list", params))
            found += [FileEntry.model_validate(entry) for entry in page["entries"]]
            following = page.get("next")
            if not following:
                return found
            params |= following

    def stat(self, path: str) -> FileStatus:
        """What a path is."""
        return FileStatus.model_validate(json_of(self._exchange("GET", "/stat", {"path": path})))

    def move(self, source: str, target: str, *, replace: bool = False) -> None:
        """Rename a file or a directory. `replace`: whatever has that name."""
        self._exchange("POST", "/move", None, json={"source": source, "target": target, "replace": replace})

    def delete(self, path: str, *, recursive: bool = False) -> None:
        """Delete a file or an empty directory, or with `recursive` a directory and all that is below it."""
        params: dict[str, Any] = {"path": path} | ({"recursive": "true"} if recursive else {})
        self._exchange("DELETE", "", params)

    def upload(self, source: str | Path, target: str = ".") -> None:
        """Copy a local file, or the files and directories below a local directory, to `target` in the workspace."""
        local = Path(source)
        if in_thread(local.is_dir):
            body = in_thread(partial(pack_tree, local))
            headers = {"Content-Type": "application/x-tar"}
            self._exchange("PUT", "/tree", {"path": target}, headers=headers, content=body)
        else:
            self.write(target, in_thread(local.read_bytes))

    def download(self, path: str, to: str | Path) -> None:
        """Copy a file, or the files and directories below a directory, to the local path `to`.

        Entries of a directory that policy doesn't let you read are left out.
        """
        local = Path(to)
        if (self.stat(path)).kind == "directory":
            content = (self._exchange("GET", "/tree", {"path": path})).content
            in_thread(partial(unpack_tree, content, local))
        else:
            content = self.read(path)
            in_thread(partial(local.write_bytes, content))

    def _exchange(
        self,
        method: str,
        below: str,
        params: dict[str, Any] | None,
        *,
        headers: dict[str, str] | None = None,
        **body: Any,
    ) -> httpx2.Response:
        """Send a request. If its call must wait, wait for its end and send it again: the same key joins the call."""
        headers = {**(headers or {}), IDEMPOTENCY_KEY: uuid4().hex}
        request: Request[None] = Request(
            method,
            f"{self._path}{below}",
            lambda _: None,
            params,
            headers=headers,
            repeatable=True,
            timeout_s=600.0,
            **body,
        )
        while True:
            response = self._transport.exchange(request)
            if response.status_code != HTTPStatus.ACCEPTED:
                return response
            self._wait(str(response.json()["tool_call_id"]))
