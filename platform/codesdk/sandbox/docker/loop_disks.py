"""Workspaces as ext4 image files, each attached to a loop device.

A file's name identifies its sandbox, and the kernel reports which device has which file. So the leftovers of a killed
worker can be found, and a device is never freed by its number alone, which the kernel reuses.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import subprocess
import threading
import time
from pathlib import Path

from codesdk.errors import ExitCode, Fault
from codesdk.sandbox.isolation.disk_quota import LOOP_CONTROL, mkfs

# linux/loop.h
_SET_FD, _CLR_FD, _GET_STATUS, _GET_FREE = 0x4C00, 0x4C01, 0x4C05, 0x4C82
_STATUS_BYTES = 232
_BACKING = struct.Struct("=QQ")
"""Head of `struct loop_info64`: device and inode of the backing file."""
_SUFFIX = ".ext4"
_MAKE_S = 30.0
_FREED_S = 5.0
"""How long other programs (udev, blkid) may keep a device open after its release."""
_TRIES = 64


class DiskUnavailable(Fault):
    """A workspace image can't be created or released."""

    code = "DISK_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.CANNOT_WRITE


class LoopDisks:
    """The workspace image files of one installation, in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.resolve()
        self._lock = threading.Lock()

    def make(self, name: str, *, size: int, inodes: int, uid: int) -> str:
        """Return the loop device of the workspace with this name; creates image and device if needed.

        Args:
            name: of container and volume.
            size: bytes of the whole file system, which itself uses about 3 %.
            inodes: maximum number of files and directories.
            uid: owner of its root directory.

        Raises:
            DiskUnavailable: no space, no device, or mkfs failed. `release` removes what was created.
        """
        path = self._path(name)
        try:
            if not path.exists():
                self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                _format(path, size, inodes, uid)
            with self._lock:
                return _devices(path)[0] if _devices(path) else _attach(path)
        except OSError as error:
            raise DiskUnavailable(
                f"The workspace {name} could not be created: {error}.",
                advice="Check the free space of the data directory and the free loop devices (`losetup -l`).",
            ) from error

    def device(self, name: str) -> str | None:
        """Return the current loop device of the workspace; None if there is none."""
        return next(iter(_devices(self._path(name))), None)

    def release(self, name: str) -> None:
        """Free device and file. Idempotent.

        Remove the volume first: it refers to the device by number, and that could soon be another workspace's.

        Raises:
            DiskUnavailable: the device is still in use.
        """
        path = self._path(name)
        deadline = time.monotonic() + _FREED_S
        try:
            while devices := _devices(path):
                for device in devices:
                    _detach(device, path)
                if time.monotonic() > deadline:
                    raise DiskUnavailable(
                        f"{', '.join(devices)} is still in use and keeps the workspace {name}.",
                        advice=f"`grep -l {devices[0]} /proc/[0-9]*/mountinfo` shows who has it mounted; the sweep tries again.",
                    )
                time.sleep(0.01)
            path.unlink(missing_ok=True)
            _unfinished(path).unlink(missing_ok=True)
        except OSError as error:
            raise DiskUnavailable(
                f"The workspace {name} could not be freed: {error}.", advice="The sweep tries again."
            ) from error

    def names(self) -> set[str]:
        """Return the names of all workspaces with a file or a device."""
        here = {path.name for path in self._directory.glob(f"*{_SUFFIX}*")} if self._directory.is_dir() else set()
        attached = {Path(file).name for file in _attached().values() if Path(file).parent == self._directory}
        return {name.partition(_SUFFIX)[0] for name in here | attached}

    def _path(self, name: str) -> Path:
        return self._directory / f"{name}{_SUFFIX}"


def _unfinished(path: Path) -> Path:
    return path.with_name(path.name + ".unfinished")


def _format(path: Path, size: int, inodes: int, uid: int) -> None:
    """Create a sparse file with an empty ext4, atomically."""
    program = mkfs()
    if program is None:
        raise FileNotFoundError(errno.ENOENT, "mkfs.ext4 is not installed")
    unfinished = _unfinished(path)
    unfinished.unlink(missing_ok=True)
    with unfinished.open("xb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.truncate(size)
    # No journal: the workspace ends with its sandbox, and each journal costs a kernel thread and writes.
    # Tables are written on use (lazy, nodiscard): 12 ms and 0.6 MB for 1 GiB instead of 25 MB.
    extended = f"lazy_itable_init=1,nodiscard,root_owner={uid}:{uid}"
    _run(program, "-q", "-F", "-O", "^has_journal", "-E", extended, "-m", "0", "-N", str(inodes), str(unfinished))
    # `git clone … .` refuses a directory that contains lost+found, and no fsck will ever need it here.
    _run(str(Path(program).with_name("debugfs")), "-w", "-R", "rmdir lost+found", str(unfinished))
    unfinished.rename(path)


def _run(*argv: str) -> None:
    ran = subprocess.run(argv, capture_output=True, timeout=_MAKE_S, check=False, stdin=subprocess.DEVNULL)
    if ran.returncode != 0:
        raise OSError(errno.EIO, f"{Path(argv[0]).name} failed: {ran.stderr.decode('utf-8', 'replace').strip()}")


def _attach(path: Path) -> str:
    with path.open("r+b") as file, LOOP_CONTROL.open("r+b", buffering=0) as control:
        for _ in range(_TRIES):
            number = fcntl.ioctl(control, _GET_FREE)
            device = Path(f"/dev/loop{number}")
            try:
                with device.open("r+b", buffering=0) as opened:
                    fcntl.ioctl(opened, _SET_FD, file.fileno())
            except OSError as error:
                if error.errno not in (errno.EBUSY, errno.ENOENT):  # taken meanwhile; or its node doesn't exist yet
                    raise
                time.sleep(0.01)
            else:
                return str(device)
    raise OSError(errno.EBUSY, "no free loop device")


def _detach(device: str, path: Path) -> None:
    try:
        opened = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        # The kernel can't reuse the number while the device is open, so check again before freeing it.
        if device in _devices(path):
            fcntl.ioctl(opened, _CLR_FD)
    except OSError as error:
        if error.errno != errno.ENXIO:  # freed meanwhile
            raise
    finally:
        os.close(opened)


def _devices(path: Path) -> list[str]:
    return [device for device, file in _attached().items() if file == str(path) or _is_same(device, file, path)]


def _is_same(device: str, file: str, path: Path) -> bool:
    """Return whether a device has this file, which the kernel reports by another path.

    If a worker in a container opened it, that mount ends with the container, and the kernel's path then starts below
    the mount. The file name must match, and device and inode of the file decide.
    """
    if Path(file).name != path.name:
        return False
    try:
        known = path.stat()
        with open(device, "rb", buffering=0) as opened:  # noqa: PTH123 (one call less to fail between)
            status = fcntl.ioctl(opened, _GET_STATUS, bytes(_STATUS_BYTES))
    except OSError:
        return False  # freed while we look, or the file is gone
    return _BACKING.unpack_from(status) == (known.st_dev, known.st_ino)


def _attached() -> dict[str, str]:
    """Return the backing file of every loop device of the machine."""
    found = {}
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = entry.read_text().strip()
        except OSError:
            continue  # freed while we look
        found[f"/dev/{entry.parent.parent.name}"] = file.removesuffix(" (deleted)")
    return found
