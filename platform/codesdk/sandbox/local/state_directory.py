"""The state directory of a local sandbox, below `local/` of the data directory."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
from pathlib import Path
from typing import Any

from codesdk.sandbox.local.cgroups import Cgroup, Controller
from codesdk.sandbox.local.faults import RemovalFailed

_OWNER_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
WORKSPACE_ROOT = Path("/var/tmp")  # noqa: S108 - what is made there is checked, see `StateDirectories.prepare`


class StateDirectory:
    """The state files of one sandbox."""

    def __init__(self, directory: Path, workspace: Path) -> None:
        self.directory = directory
        self.workspace = workspace
        """Path on this machine; tools may see another path."""

    @property
    def owner(self) -> str:
        """Id of the sandbox's owner."""
        return self.directory.name

    def spec(self) -> str:
        """Return the spec it was created from; empty if it wasn't created completely."""
        return self._text("spec.json")

    def stderr_tail(self) -> str:
        """Return the tail of the runner's stderr."""
        return self._text("said").strip()

    def end_reason(self) -> str:
        """Return how the runner ended, if its shim recorded that."""
        return self._text("ended").strip()

    def record(self) -> dict[str, Any] | None:
        """Return the shim's record of its processes; None if none was started."""
        text = self._text("porter.json")
        return json.loads(text) if text else None

    def group(self) -> Cgroup:
        """Return the sandbox's cgroups, recorded before they are created; empty if it has none."""
        text = self._text("cgroups.json")
        return Cgroup({Controller(name): Path(path) for name, path in (json.loads(text) if text else {}).items()})

    def write(self, name: str, text: str) -> None:
        """Write a file atomically."""
        fresh = self.directory / f".{name}-{secrets.token_hex(4)}"
        fresh.write_text(text, "utf-8")
        fresh.rename(self.directory / name)

    def _text(self, name: str) -> str:
        try:
            return (self.directory / name).read_text("utf-8", "replace")
        except FileNotFoundError:
            return ""


class StateDirectories:
    """The state directories of one installation."""

    def __init__(self, root: Path, *, apart: bool) -> None:
        """`apart`: tools run unconfined as other users, who can't enter the data directory; workspaces aren't in it."""
        self._root = root
        digest = hashlib.sha256(os.fsencode(root.absolute())).hexdigest()[:16]
        self._workspace_root = WORKSPACE_ROOT / f"codesdk-{os.getuid()}-{digest}" if apart else None

    def of(self, owner: str) -> StateDirectory:
        """Return the owner's state directory, whether it exists or not.

        Raises:
            ValueError: the id can't be a file name.
        """
        if not _OWNER_PATTERN.fullmatch(owner):
            raise ValueError(f"not the id of a sandbox: {owner!r}")
        directory = self._root / owner
        workspace = self._workspace_root / owner if self._workspace_root else directory
        return StateDirectory(directory, workspace / "workspace")

    def make(self, owner: str, *, kept: bool = False) -> StateDirectory:
        """Create the directory of a new sandbox, private to this user. `kept`: the workspace already exists."""
        state = self.of(owner)
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        state.directory.mkdir(mode=0o700, exist_ok=kept)
        if self._workspace_root is not None:
            _make_traversable(self._workspace_root)
            state.workspace.parent.mkdir(parents=True, mode=0o711, exist_ok=kept)
        state.workspace.mkdir(mode=0o755, exist_ok=kept)
        return state

    def clear(self, owner: str) -> None:
        """Remove everything except the workspace; the sandbox's processes must have ended.

        Raises:
            RemovalFailed: something can't be removed.
        """
        state = self.of(owner)
        try:
            for directory in dict.fromkeys((state.workspace.parent, state.directory)):
                for entry in list(directory.iterdir()) if directory.is_dir() else ():
                    if entry.is_dir() and not entry.is_symlink():
                        if entry != state.workspace:
                            remove_tree(entry)
                    else:
                        entry.unlink()
        except OSError as error:
            raise RemovalFailed(owner, str(error)) from error

    def owners(self) -> list[str]:
        """Return the owners of all existing directories, complete or not."""
        found: set[str] = set()
        for root in (self._root, self._workspace_root):
            if root is not None and root.is_dir():
                found.update(entry.name for entry in root.iterdir() if _OWNER_PATTERN.fullmatch(entry.name))
        return sorted(found)

    def remove(self, owner: str) -> None:
        """Remove everything, if it exists; the sandbox's processes must have ended.

        Raises:
            RemovalFailed: something can't be removed.
        """
        state = self.of(owner)
        try:
            # Remove the record last, so that a sweep finds what is left.
            for directory in dict.fromkeys((state.workspace.parent, state.directory)):
                if directory.exists():
                    remove_tree(directory)
        except OSError as error:
            raise RemovalFailed(owner, str(error)) from error
        if self._workspace_root is not None:
            with contextlib.suppress(OSError):  # not empty: it has other sandboxes
                self._workspace_root.rmdir()


def _make_traversable(root: Path) -> None:
    """Create a directory that others can traverse but not list. Refuses one that another user created."""
    try:
        root.mkdir(mode=0o711)
        root.chmod(0o711)
    except FileExistsError:
        about = root.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid() or about.st_mode & 0o022:
            raise PermissionError(f"{root} is not a private directory of this user") from None


def remove_tree(top: Path) -> None:
    """Remove a directory regardless of modes, names and depth, which a recursion couldn't handle.

    Subdirectories are moved up next to `top` and emptied there one by one, so that no path grows with the depth.
    """
    parent = os.open(top.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        pending = [top.name]
        while pending:
            name = pending.pop()
            os.chmod(
                name, 0o700, dir_fd=parent, follow_symlinks=False
            ) if os.chmod in os.supports_follow_symlinks else (os.chmod(name, 0o700, dir_fd=parent))
            here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            try:
                pending += _empty(here, parent)
            finally:
                os.close(here)
            os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)


def _empty(here: int, parent: int) -> list[str]:
    """Remove the files of a directory and move its subdirectories to `parent`; returns their names there."""
    moved = []
    with os.scandir(here) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.name, 0o700, dir_fd=here)  # moving a directory writes its `..`
                name = f".removing-{secrets.token_hex(12)}"
                os.rename(entry.name, name, src_dir_fd=here, dst_dir_fd=parent)
                moved.append(name)
            else:
                os.unlink(entry.name, dir_fd=here)
    return moved
