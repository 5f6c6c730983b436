"""A `RunnerSandbox` that maps workspace paths: without isolation the workspace is a directory of this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from codesdk.sandbox.channel.connection import Stream
from codesdk.sandbox.channel.sandbox import RunnerSandbox
from codesdk.sandbox.egress.service import EgressService
from codesdk.sandbox.port import (
    Changes,
    ExecRequest,
    FileContent,
    FileFingerprint,
    FileInfo,
    FileRefused,
    Files,
    FileWrite,
    Listing,
    Manifest,
    NamedPath,
    ProcessLimits,
    SandboxSpec,
    Watch,
)


class PathMapping(NamedTuple):
    """The workspace's path in the profile and on this machine."""

    sandbox_path: str
    host_path: str

    def resolve(self, path: str) -> str:
        """Return the path on this machine; a path outside the profile's workspace stays as it is."""
        if self.sandbox_path != self.host_path and (
            path == self.sandbox_path or path.startswith(f"{self.sandbox_path}/")
        ):
            return self.host_path + path[len(self.sandbox_path) :]
        return path

    def name(self, name: NamedPath) -> NamedPath:
        """Return the name of the same file on this machine."""
        return NamedPath(path=self.resolve(name.path), cwd=self.resolve(name.cwd))


class MappedFiles:
    """`Files` that accept both paths of the workspace."""

    def __init__(self, files: Files, mapping: PathMapping) -> None:
        self._files = files
        self._mapping = mapping

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> FileContent | FileRefused:
        """Read bytes of a file; see the port."""
        return self._files.read(self._mapping.resolve(path), offset=offset, length=length)

    def write(self, writes: tuple[FileWrite, ...]) -> tuple[FileInfo, ...] | FileRefused:
        """Write a batch of files; see the port."""
        return self._files.write(
            tuple(write.model_copy(update={"path": self._mapping.resolve(write.path)}) for write in writes)
        )

    def list(self, path: str, *, depth: int = 1, limit: int = 1000) -> Listing | FileRefused:
        """List a directory; see the port."""
        return self._files.list(self._mapping.resolve(path), depth=depth, limit=limit)

    def stat(self, path: str) -> FileInfo | FileRefused:
        """Describe one entry; see the port."""
        return self._files.stat(self._mapping.resolve(path))

    def make_directory(self, path: str) -> FileInfo | FileRefused:
        """Create a directory; see the port."""
        return self._files.make_directory(self._mapping.resolve(path))

    def move(self, path: str, target: str, *, replace: bool = False) -> FileInfo | FileRefused:
        """Rename within the workspace; see the port."""
        return self._files.move(self._mapping.resolve(path), self._mapping.resolve(target), replace=replace)

    def delete(self, path: str, *, recursive: bool = False) -> int | FileRefused:
        """Delete an entry; see the port."""
        return self._files.delete(self._mapping.resolve(path), recursive=recursive)

    def upload(
        self, path: str, pieces: Iterable[bytes], *, if_sha256: str | None = None, mode: int | None = None
    ) -> FileInfo | FileRefused:
        """Write a file of any size; see the port."""
        return self._files.upload(self._mapping.resolve(path), pieces, if_sha256=if_sha256, mode=mode)

    def download(self, path: str, take: Callable[[bytes], object], *, offset: int = 0) -> FileInfo | FileRefused:
        """Read a file of any size; see the port."""
        return self._files.download(self._mapping.resolve(path), take, offset=offset)

    def watch(self, path: str = ".") -> Watch | FileRefused:
        """Start a watch; see the port."""
        return self._files.watch(self._mapping.resolve(path))

    def changes(self, watch: str, after: int = 0, *, limit: int = 1000, wait_s: float = 0.0) -> Changes | FileRefused:
        """Return changes; see the port."""
        return self._files.changes(watch, after, limit=limit, wait_s=wait_s)

    def unwatch(self, watch: str) -> bool:
        """End a watch; see the port."""
        return self._files.unwatch(watch)

    def marks(self, names: tuple[NamedPath, ...]) -> tuple[FileFingerprint, ...] | FileRefused:
        """Fingerprint files; see the port."""
        found = self._files.marks(tuple(self._mapping.name(name) for name in names))
        if isinstance(found, FileRefused):
            return found
        return tuple(mark.model_copy(update=name.model_dump()) for mark, name in zip(found, names, strict=True))

    def manifest(self) -> Manifest | FileRefused:
        """Return every entry with its digest; see the port."""
        return self._files.manifest()


class LocalSandbox(RunnerSandbox):
    """A `RunnerSandbox` with mapped workspace paths."""

    def __init__(
        self,
        spec: SandboxSpec,
        mapping: PathMapping,
        connect: Callable[[], Stream],
        ended: Callable[[], str | None],
        *,
        paused: Callable[[], bool] = lambda: False,
        foreign_threads: Callable[[], int] = lambda: 0,
        egress: EgressService | None = None,
    ) -> None:
        """`foreign_threads`: returns how many threads besides the tools' the kernel counts towards their limit."""
        super().__init__(spec, connect, ended, paused=paused, egress=egress)
        self._mapping = mapping
        self._foreign_threads = foreign_threads
        self._mapped_files = MappedFiles(super().files, mapping)

    @property
    def files(self) -> MappedFiles:  # type: ignore[override] # the port asks for `Files`; both are
        """Files of the workspace."""
        return self._mapped_files

    def files_of(self, call: str, attempt: int) -> MappedFiles:
        """Return the files for one call; see the port."""
        return MappedFiles(super().files_of(call, attempt), self._mapping)

    def _limits(self, limits: ProcessLimits) -> dict[str, int]:
        found = super()._limits(limits)
        if "nproc" in found:
            found["nproc"] += self._foreign_threads()
        return found

    def _start_request(self, request: ExecRequest, **more: Any) -> tuple[dict[str, Any], bytes]:
        bound = tuple(mark.model_copy(update=self._mapping.name(mark.name).model_dump()) for mark in request.bound)
        return super()._start_request(
            request.model_copy(update={"cwd": self._mapping.resolve(request.cwd), "bound": bound}), **more
        )
