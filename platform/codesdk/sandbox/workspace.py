"""The `Files` of a sandbox, asked of its runner."""

from __future__ import annotations

import json
from typing import Any, Protocol

from pydantic import TypeAdapter

from codesdk.sandbox.faults import RunnerRefused
from codesdk.sandbox.port import FileContent, FileError, FileInfo, FileRefused, FileWrite, Listing
from codesdk.sandbox.profile import Profile
from codesdk.sandbox.runner import wire

_INFOS = TypeAdapter(tuple[FileInfo, ...])
_BATCH_BYTES = wire.MAX_MESSAGE - 2 * 1024 * 1024


class Ask(Protocol):
    """One request to the runner; `repeat` where asking twice changes nothing."""

    def __call__(
        self, header: dict[str, Any], body: bytes = b"", *, repeat: bool = False
    ) -> tuple[dict[str, Any], bytes]:
        """The answer's header and body."""
        ...


class RunnerFiles:
    """Files beneath the workspace, with the tool user's rights."""

    def __init__(self, ask: Ask, profile: Profile) -> None:
        self._ask = ask
        self._profile = profile

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Bytes of a file; see the port."""
        answer, data = self._ask({"op": "read", "path": path, "offset": offset, "length": length}, repeat=True)
        return _refused(answer) or FileContent(data=data, **_part(answer, "content"))

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
                "path": write.path,
                "bytes": None if write.content is None else len(write.content),
                "expect": write.if_sha256,
                "mode": write.mode,
            }
            for write in writes
        ]
        spec = json.dumps(items).encode()
        answer, data = self._ask({"op": "write", "spec_bytes": len(spec)}, spec + b"".join(contents))
        return _refused(answer) or _INFOS.validate_json(data)

    def list(self, path: str, *, depth: int = 1, limit: int = 1000) -> Listing | FileRefused:
        """Entries of a directory; see the port."""
        answer, data = self._ask({"op": "list", "path": path, "depth": depth, "limit": limit}, repeat=True)
        return _refused(answer) or Listing(entries=_INFOS.validate_json(data), truncated=bool(answer["truncated"]))

    def stat(self, path: str) -> FileInfo | FileRefused:
        """One entry; see the port."""
        answer, _ = self._ask({"op": "stat", "path": path}, repeat=True)
        return _refused(answer) or FileInfo.model_validate(_part(answer, "info"))


def _refused(answer: dict[str, Any]) -> FileRefused | None:
    if "error" in answer:
        raise RunnerRefused(f"The runner refused a file operation: {answer}")
    if "refused" not in answer:
        return None
    return FileRefused(error=FileError(answer["refused"]), path=str(answer["path"]), message=str(answer["message"]))


def _part(answer: dict[str, Any], name: str) -> dict[str, Any]:
    found = answer.get(name)
    if not isinstance(found, dict):
        raise RunnerRefused(f"The runner's answer has no {name}: {answer}")
    return found
