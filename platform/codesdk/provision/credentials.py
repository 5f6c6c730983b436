"""Generates the passwords of a Compose installation and writes each service's credential files.

`python -m codesdk.provision.credentials [ROOT]` runs first at every start. It keeps existing passwords and rewrites
the files from them, so that changed rules take effect with the next `up`. ROOT contains one volume per service:

    source/    the passwords; no other service mounts it
    postgres/  the superuser's password, and the SQL that creates the two roles
    redis/     the ACL: users and their permissions
    migrate/   database URL of the owner, which may change the schema
    api/, worker/   database URL of a role that reads and writes rows; Redis URL of the service's own user
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from codesdk.domain.model import FrozenModel
from codesdk.eventlog.hints import CHANNEL

ROOT = Path("/credentials")
SOURCE = Path("source/passwords.json")
BYTES = 32
"""Random bytes per password: 256 bits, as many as the strongest hash of one."""
_PRODUCER_COMMANDS = "+sadd +hset +expire +rpush +publish +subscribe +unsubscribe"
"""Commands that publish wake-ups and hints; seen with MONITOR on RQ 3.0."""
_CONSUMER_COMMANDS = "+blpop +del +info +multi +exec +discard +exists +srem +hget"
"""Further commands that an RQ worker needs to start, take wake-ups and stop."""


class Passwords(FrozenModel):
    """The password of each role."""

    superuser: str
    owner: str
    app: str
    api: str
    worker: str


def generate_passwords(token: Callable[[], str]) -> Passwords:
    """Generate new passwords.

    `token` returns random letters, digits, `-` and `_`, which need no quoting in any of the files.
    """
    return Passwords(**{name: token() for name in Passwords.model_fields})


def service_files(passwords: Passwords) -> dict[str, str]:
    """Return each file's content by its path below the root."""
    rows = f"postgresql://codesdk_app:{passwords.app}@postgres:5432/codesdk"
    return {
        "postgres/superuser": passwords.superuser,
        "postgres/10-roles.sql": create_roles_sql(passwords),
        "redis/users.acl": redis_acl(passwords),
        "migrate/codesdk_database_url": f"postgresql://codesdk_owner:{passwords.owner}@postgres:5432/codesdk",
        "api/codesdk_database_url": rows,
        "api/codesdk_redis_url": f"redis://api:{passwords.api}@redis:6379/0",
        "worker/codesdk_database_url": rows,
        "worker/codesdk_redis_url": f"redis://worker:{passwords.worker}@redis:6379/0",
    }


def create_roles_sql(passwords: Passwords) -> str:
    """Return the SQL that the superuser runs once in the new database.

    The app role may read and write every table that the owner creates.
    """
    return f"""\
CREATE ROLE codesdk_owner LOGIN PASSWORD '{passwords.owner}';
CREATE ROLE codesdk_app LOGIN PASSWORD '{passwords.app}';
ALTER DATABASE codesdk OWNER TO codesdk_owner;
REVOKE ALL ON DATABASE codesdk FROM PUBLIC;
GRANT CONNECT ON DATABASE codesdk TO codesdk_app;
GRANT USAGE ON SCHEMA public TO codesdk_app;
ALTER DEFAULT PRIVILEGES FOR ROLE codesdk_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO codesdk_app;
ALTER DEFAULT PRIVILEGES FOR ROLE codesdk_owner IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO codesdk_app;
"""


def redis_acl(passwords: Passwords) -> str:
    """Return the Redis ACL: access to the queue's keys and the hint channel, and no administrative commands."""
    may = f"resetkeys ~rq:* resetchannels &{CHANNEL} -@all +@connection -@dangerous -@admin {_PRODUCER_COMMANDS}"
    return "\n".join(
        [
            "user default off resetpass resetkeys resetchannels -@all",
            f"user api on {_hashed(passwords.api)} {may}",
            f"user worker on {_hashed(passwords.worker)} {may} {_CONSUMER_COMMANDS}",
            "",
        ]
    )


def _hashed(password: str) -> str:
    return "#" + hashlib.sha256(password.encode()).hexdigest()


def load_or_create(root: Path, token: Callable[[], str]) -> Passwords:
    """Load the stored passwords, or create and fsync new ones before any file is derived from them."""
    path = root / SOURCE
    if path.exists():
        return Passwords.model_validate_json(path.read_bytes())
    made = generate_passwords(token)
    _write(path, made.model_dump_json(), 0o400)
    return made


def write_service_files(root: Path, passwords: Passwords) -> None:
    """Write each service's files atomically.

    They are world-readable: each service runs as its own user, and only that service mounts the directory.
    """
    for name, content in service_files(passwords).items():
        _write(root / name, content, 0o444)


def _write(path: Path, content: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)  # os.open applies the umask
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    new.rename(path)


def main(argv: list[str]) -> None:
    """Create missing passwords and write all files. Prints no secrets."""
    root = Path(argv[0]) if argv else ROOT
    write_service_files(root, load_or_create(root, lambda: secrets.token_urlsafe(BYTES)))


if __name__ == "__main__":
    main(sys.argv[1:])
