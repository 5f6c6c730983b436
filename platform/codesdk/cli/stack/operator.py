"""The operator of an embedded installation: enrolled at the first start, its key kept in the data directory."""

from __future__ import annotations

import os
from pathlib import Path

from codesdk.bootstrap import Services
from codesdk.errors import ExitCode, Fault
from codesdk.tenancy.directory import DEFAULT_TENANT
from codesdk.tenancy.principal import Role, Unauthenticated

KEY_FILE = "operator.key"


class NoOperatorKey(Fault):
    """There is no key to speak to the daemon with."""

    code = "NO_OPERATOR_KEY"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


def ensure_operator(services: Services) -> str:
    """The operator's API key; a new one where there is none, or where it belongs to another database."""
    path = services.settings.data_dir / KEY_FILE
    key = path.read_text().strip() if path.exists() else ""
    if key:
        try:
            services.directory.principal(key)
        except Unauthenticated:
            key = ""
    if not key:
        _, key = services.writer.run(
            lambda unit: services.directory.enroll(unit, DEFAULT_TENANT, "operator", tuple(Role))
        )
        _keep(path, key)
    return key


def operator_key(data_dir: Path) -> str:
    """The key that `codesdk up` left.

    Raises:
        NoOperatorKey: none, or not readable for this user.
    """
    try:
        return (data_dir / KEY_FILE).read_text().strip()
    except OSError as error:
        raise NoOperatorKey(
            f"There is no operator key in {data_dir} ({(error.strerror or str(error)).lower()}).",
            advice="Start `codesdk up` with the same --data-dir, as the same user.",
        ) from error


def _keep(path: Path, key: str) -> None:
    fresh = path.with_name(f".{KEY_FILE}-{os.getpid()}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key + "\n")
    fresh.rename(path)
