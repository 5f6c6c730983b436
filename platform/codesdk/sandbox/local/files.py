"""A sandbox whose workspace may lie elsewhere than tools' paths say: without a wall it is a directory of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from codesdk.sandbox.egress.service import Egress
from codesdk.sandbox.link import Stream
from codesdk.sandbox.port import (
    Changes,
    ExecRequest,
    FileContent,
    FileInfo,
    FileMark,
    FileName,
    FileRefused,
    Files,
    FileWrite,
    Listing,
    Manifest,
    ProcessLimits,
    SandboxSpec,
    Watch,
)
from codesdk.sandbox.session import RunnerSandbox


class Alias(NamedTuple):
    """The workspace's path by its profile, and by its runner."""

    named: str
    real: str

    def resolve(self, path: str) -> str:
        """The path as the runner knows it; one that is not beneath the named workspace stays as it is."""
        if self.named != self.real and (path == self.named or path.startswith(f"{self.named}/")):
            return self.real + path[len(self.named) :]
        return path

    def name(self, name: FileName) -> FileName:
        """The same file's name, as the runner knows it."""
        return FileName(path=self.resolve(name.path), cwd=self.resolve(name.cwd))


class AliasedFiles:
    """`Files` in which both paths mean the workspace."""

    def __init__(self, files: Files, alias: Alias) -> None:
        self._files = files
        self._alias = alias

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Bytes of a file; see the port."""
        return self._files.read(self._alias.resolve(path), offset=offset, length=length)

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """A batch of files; see the port."""
        return self._files.write(
            tuple(write.model_copy(update={"path": self._alias.resolve(write.path)}) for write in writes)
        )

    def list(self, path: str, *, depth: int = 1, limit: int = 1000) -> Listing | FileRefused:
        """Entries of a directory; see the port."""
        return self._files.list(self._alias.resolve(path), depth=depth, limit=limit)

    def stat(self, path: str) -> FileInfo | FileRefused:
        """One entry; see the port."""
        return self._files.stat(self._alias.resolve(path))

    def make_directory(self, path: str) -> FileInfo | FileRefused:
        """A directory; see the port."""
        return self._files.make_directory(self._alias.resolve(path))

    def move(self, path: str, target: str, *, replace: bool = False) -> FileInfo | FileRefused:
        """Rename within the workspace; see the port."""
        return self._files.move(self._alias.resolve(path), self._alias.resolve(target), replace=replace)

    def delete(self, path: str, *, recursive: bool = False) -> int | FileRefused:
        """Delete an entry; see the port."""
        return self._files.delete(self._alias.resolve(path), recursive=recursive)

    def upload(
        self, path: str, pieces: Iterable[bytes], *, if_sha256: str | None = None, mode: int | None = None
    ) -> FileInfo | FileRefused:
        """A file of any size; see the port."""
        return self._files.upload(self._alias.resolve(path), pieces, if_sha256=if_sha256, mode=mode)

    def download(self, path: str, take: Callable[[bytes], object], *, offset: int = 0) -> FileInfo | FileRefused:
        """A file of any size; see the port."""
        return self._files.download(self._alias.resolve(path), take, offset=offset)

    def watch(self, path: str = ".") -> Watch | FileRefused:
        """Begin a watch; see the port."""
        return self._files.watch(self._alias.resolve(path))

    def changes(self, watch: str, after: int = 0, *, limit: int = 1000, wait_s: float = 0.0) -> Changes | FileRefused:
        """What has changed; see the port."""
        return self._files.changes(watch, after, limit=limit, wait_s=wait_s)

    def unwatch(self, watch: str) -> bool:
        """End a watch; see the port."""
        return self._files.unwatch(watch)

    def marks(self, names: tuple[FileName, ...]) -> tuple[FileMark, ...] | FileRefused:
        """What each name leads to; see the port."""
        found = self._files.marks(tuple(self._alias.name(name) for name in names))
        if isinstance(found, FileRefused):
            return found
        return tuple(mark.model_copy(update=name.model_dump()) for mark, name in zip(found, names, strict=True))

    def manifest(self) -> Manifest | FileRefused:
        """Every entry with its digest; see the port."""
        return self._files.manifest()


class LocalSandbox(RunnerSandbox):
    """A `RunnerSandbox` with such files."""

    def __init__(
        self,
        spec: SandboxSpec,
        alias: Alias,
        connect: Callable[[], Stream],
        ended: Callable[[], str | None],
        *,
        paused: Callable[[], bool] = lambda: False,
        beside: Callable[[], int] = lambda: 0,
        egress: Egress | None = None,
    ) -> None:
        """Beside: processes that the kernel counts with the tools' and that are not theirs."""
        super().__init__(spec, connect, ended, paused=paused, egress=egress)
        self._alias = alias
        self._beside = beside
        self._aliased = AliasedFiles(super().files, alias)

    @property
    def files(self) -> AliasedFiles:  # type: ignore[override] # the port asks for `Files`; both are
        """Its workspace."""
        return self._aliased

    def files_of(self, call: str, attempt: int) -> AliasedFiles:
        """The same for one call; see the port."""
        return AliasedFiles(super().files_of(call, attempt), self._alias)

    def _limits(self, limits: ProcessLimits) -> dict[str, int]:
        found = super()._limits(limits)
        if "nproc" in found:
            found["nproc"] += self._beside()
        return found

    def _order(self, request: ExecRequest, **more: Any) -> tuple[dict[str, Any], bytes]:
        bound = tuple(mark.model_copy(update=self._alias.name(mark.name).model_dump()) for mark in request.bound)
        return super()._order(
            request.model_copy(update={"cwd": self._alias.resolve(request.cwd), "bound": bound}), **more
        )
