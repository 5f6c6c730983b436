"""A sandbox whose workspace may lie elsewhere than tools' paths say: without a wall it is a directory of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from codesdk.sandbox.egress.service import Egress
from codesdk.sandbox.link import Stream
from codesdk.sandbox.port import (
    ExecRequest,
    ExecResult,
    FileContent,
    FileInfo,
    FileRefused,
    FileWrite,
    Listing,
    OnOutput,
    SandboxSpec,
)
from codesdk.sandbox.session import RunnerSandbox
from codesdk.sandbox.workspace import RunnerFiles


class Alias(NamedTuple):
    """The workspace's path by its profile, and by its runner."""

    named: str
    real: str

    def resolve(self, path: str) -> str:
        """The path as the runner knows it; one that is not beneath the named workspace stays as it is."""
        if self.named != self.real and (path == self.named or path.startswith(f"{self.named}/")):
            return self.real + path[len(self.named) :]
        return path


class AliasedFiles:
    """`Files` in which both paths mean the workspace."""

    def __init__(self, files: RunnerFiles, alias: Alias) -> None:
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


class LocalSandbox(RunnerSandbox):
    """A `RunnerSandbox` with such files."""

    def __init__(
        self,
        spec: SandboxSpec,
        alias: Alias,
        connect: Callable[[], Stream],
        ended: Callable[[], str | None],
        *,
        egress: Egress | None = None,
    ) -> None:
        super().__init__(spec, connect, ended, egress=egress)
        self._alias = alias
        self._aliased = AliasedFiles(super().files, alias)

    @property
    def files(self) -> AliasedFiles:  # type: ignore[override] # the port asks for `Files`; both are
        """Its workspace."""
        return self._aliased

    def exec(self, request: ExecRequest, on_output: OnOutput) -> ExecResult:
        """Run to the end; see the port."""
        return super().exec(request.model_copy(update={"cwd": self._alias.resolve(request.cwd)}), on_output)
