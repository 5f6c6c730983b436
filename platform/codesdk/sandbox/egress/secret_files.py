"""Tenants' secrets as files, `<directory>/<tenant id>/<name>`, read whenever the proxy needs one.

This is the layout in which container engines and orchestrators mount secrets. Symlinks inside a tenant's folder are allowed.
"""

from __future__ import annotations

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from codesdk.errors import ExitCode, Fault

_log = logging.getLogger(__name__)

MAX_BYTES = 8 * 1024
"""The longest header value that servers accept."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


class SecretUnusable(Fault):
    """A secret's file can't be used. Its content is in no message."""

    code = "SECRET_UNUSABLE"
    status = 500
    exit_code = ExitCode.DATA


class SecretFiles:
    """A `SecretResolver` without a cache: a changed file applies from the next connection."""

    def __init__(self, directory: Path, tenant_of: Callable[[str], str | None]) -> None:
        """`tenant_of`: returns the tenant id of a sandbox."""
        self._directory = directory
        self._tenant_of = tenant_of

    def __call__(self, owner: str, name: str) -> str | None:
        """The secret of the sandbox's tenant; None if there is none of that name.

        Raises:
            SecretUnusable: the file is readable by others, outside of the tenant's folder, not ASCII, or too large.
        """
        tenant = self._tenant_of(owner)
        if tenant is None or not _is_name(tenant) or not _is_name(name):
            return None
        return read_secret(self._directory, tenant, name)


def read_secret(directory: Path, tenant: str, name: str) -> str | None:
    """One secret, without a final line end; None if there is no such file.

    Raises:
        SecretUnusable: see `SecretFiles`.
    """
    named = directory / tenant / name
    try:
        place = named.resolve(strict=True)
        if not place.is_relative_to((directory / tenant).resolve(strict=True)):
            raise SecretUnusable(
                f"{named} points outside its tenant's folder.", advice="Put the file itself in the folder."
            )
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except (OSError, RuntimeError) as error:
        raise SecretUnusable(f"{named} cannot be read: {type(error).__name__}.") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if why := permission_problem(about):
            raise SecretUnusable(f"{named} {why}.", advice=f"chmod 600 {place}, owned by the worker's user or root.")
        content = file.read(MAX_BYTES + 1)
    try:
        if len(content) > MAX_BYTES:
            raise SecretUnusable(f"{named} has more than {MAX_BYTES} bytes.")
        return content.decode("ascii").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # Without its cause: that holds the bytes.
        raise SecretUnusable(f"{named} is not ASCII text.") from None


def secret_problem(directory: Path, tenant: str, name: str) -> str:
    """Why a tenant's secret can't be used, without details; empty if it can."""
    try:
        found = read_secret(directory, tenant, name) if _is_name(tenant) and _is_name(name) else None
    except SecretUnusable as fault:
        _log.warning("%s", fault)
        return "its file cannot be used; the worker's log says why"
    return "" if found else "this tenant has none of that name"


def permission_problem(about: os.stat_result) -> str:
    """What is wrong with the file's type, mode or owner; empty if nothing is."""
    if not stat.S_ISREG(about.st_mode):
        return "is not a regular file"
    if about.st_mode & 0o077:
        return f"can be read by others than its owner (mode {stat.S_IMODE(about.st_mode):04o})"
    return "" if about.st_uid in (0, os.geteuid()) else "belongs to another user"


def list_secrets(directory: Path) -> Iterator[tuple[str, str, str]]:
    """Yield tenant, name and problem (empty if none) of every secret; never its content."""
    for tenant in sorted(path for path in directory.iterdir() if path.is_dir() and _is_name(path.name)):
        for path in sorted(path for path in tenant.iterdir() if _is_name(path.name) and not path.is_dir()):
            try:
                found = read_secret(directory, tenant.name, path.name)
            except SecretUnusable as fault:
                yield tenant.name, path.name, fault.message
            else:
                yield tenant.name, path.name, "" if found else f"{path} is empty."


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None
