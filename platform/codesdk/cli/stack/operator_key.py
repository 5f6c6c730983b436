"""Creates and stores the API key that `codesdk` commands on this machine use. The first `codesdk up` does."""

from __future__ import annotations

from pathlib import Path

from codesdk.bootstrap import Services
from codesdk.cli.console.files import write_private_file
from codesdk.provision.system.command import ProgressCallback
from codesdk.settings.operator_key import KEY_FILE
from codesdk.tenancy.principal import Reach, Role, Unauthenticated
from codesdk.tenancy.tenant import DEFAULT_TENANT

LOCAL_OPERATOR = "local"
"""Name of the principal. `codesdk init` creates another operator, whose key is in no file."""


def ensure_operator(services: Services, progress: ProgressCallback) -> str:
    """Return the operator's API key. Creates one if there is none, or if the stored one belongs to another database."""
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
            f"Created an operator's key for commands on this machine: {data_dir / KEY_FILE}, readable by this user only"
        )
    return key


def read_key(data_dir: Path) -> str:
    """Read the stored key; empty if there is none."""
    path = data_dir / KEY_FILE
    return path.read_text().strip() if path.exists() else ""


def write_key(data_dir: Path, key: str) -> None:
    """Store the key, readable by this user only."""
    write_private_file(data_dir / KEY_FILE, f"{key}\n")
