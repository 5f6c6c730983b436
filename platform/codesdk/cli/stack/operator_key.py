"""The key by which `codesdk` commands on this machine speak to the daemon.

Made at the first `codesdk up` and kept in a file of the data directory: who may read that is the operator anyway.
"""

from __future__ import annotations

import os
from pathlib import Path

from codesdk.bootstrap import Services
from codesdk.errors import ExitCode, Fault
from codesdk.provision.system.command import ProgressCallback
from codesdk.tenancy.principal import Reach, Role, Unauthenticated
from codesdk.tenancy.tenant import DEFAULT_TENANT

KEY_FILE = "operator.key"
LOCAL_OPERATOR = "local"
"""The principal's name. The operator that `codesdk init` makes is another one, whose key is in no file."""


class NoOperatorKey(Fault):
    """There is no key to speak to the daemon with."""

    code = "NO_OPERATOR_KEY"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


def ensure_operator(services: Services, progress: ProgressCallback) -> str:
    """The operator's API key; a new one where there is none, or where it belongs to another database."""
    data_dir = services.settings.data_dir
    key = read_key(data_dir)
    if key:
        try:
            services.directory.principal(key)
        except Unauthenticated:
            key = ""
    if not key:
        everything = tuple(Role)
        _, key = services.writer.run(
            lambda unit: services.directory.enroll(
                unit, DEFAULT_TENANT, LOCAL_OPERATOR, everything, reach=Reach.INSTANCE
            )
        )
        write_key(data_dir, key)
        progress(
            f"Made an operator's key for commands on this machine: {data_dir / KEY_FILE}, readable by this user only"
        )
    return key


def operator_key(data_dir: Path, other: Path | None = None) -> str:
    """The key that `codesdk up` left, or what is in the file `other`.

    Raises:
        NoOperatorKey: none, or not readable for this user.
    """
    try:
        return (other or data_dir / KEY_FILE).read_text().strip()
    except OSError as error:
        raise NoOperatorKey(
            f"There is no operator key in {other or data_dir} ({(error.strerror or str(error)).lower()}).",
            advice="Mend CODESDK_OPERATOR_KEY_FILE."
            if other
            else "Start `codesdk up` with the same --data-dir, as the same user, or name a file in CODESDK_OPERATOR_KEY_FILE.",
        ) from error


def read_key(data_dir: Path) -> str:
    """The key in the file; empty where there is none."""
    path = data_dir / KEY_FILE
    return path.read_text().strip() if path.exists() else ""


def write_key(data_dir: Path, key: str) -> None:
    """Keep the key in the file, for this user only."""
    fresh = data_dir / f".{KEY_FILE}-{os.getpid()}"
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(key + "\n")
    fresh.rename(data_dir / KEY_FILE)
