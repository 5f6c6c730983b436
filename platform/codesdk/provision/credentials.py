"""The passwords of a composed installation: made once, and handed to each service as the files that it alone mounts.

`python -m codesdk.provision.credentials [ROOT]` runs before everything else and again at every start: what was made is
kept, and the files are written anew from it, so a service gets a changed rule with the next `up`. Below ROOT, one volume
each:

    source/    the passwords; nobody else mounts it
    postgres/  of the superuser, and the statements that make the two roles
    redis/     the users and what each may do
    migrate/   database URL of the owner, who may change the schema
    api/, worker/   database URL of the role that reads and writes rows; Redis URL of a user of its own
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
"""Of each password: 256 bits, more than any hash of it."""
_PRODUCER_COMMANDS = "+sadd +hset +expire +rpush +publish +subscribe +unsubscribe"
"""What our wake-ups and hints send; seen with MONITOR on RQ 3.0."""
_CONSUMER_COMMANDS = "+blpop +del +info +multi +exec +discard +exists +srem +hget"
"""What taking wake-ups needs besides, and an RQ worker's first and last words."""


class Passwords(FrozenModel):
    """Of every role that has one."""

    superuser: str
    owner: str
    app: str
    api: str
    worker: str


def generate_passwords(token: Callable[[], str]) -> Passwords:
    """New ones; `token` gives a random word of letters, digits, `-` and `_`, which needs no quoting anywhere below."""
    return Passwords(**{name: token() for name in Passwords.model_fields})


def service_files(passwords: Passwords) -> dict[str, str]:
    """Path below the root -> content."""
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
    """Run once by the superuser, in the new database. What the owner makes later is the app's to read and write."""
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
    """The queue's keys and the hints' channel, and no command that reads or changes the server itself."""
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
    """What was made here before, else new ones, durable before anybody gets a file that is made from them."""
    path = root / SOURCE
    if path.exists():
        return Passwords.model_validate_json(path.read_bytes())
    made = generate_passwords(token)
    _write(path, made.model_dump_json(), 0o400)
    return made


def write_service_files(root: Path, passwords: Passwords) -> None:
    """Write each service's files, whole or not at all.

    They are readable to all: each service runs as a user of its own choice, and only it mounts the directory.
    """
    for name, content in service_files(passwords).items():
        _write(root / name, content, 0o444)


def _write(path: Path, content: str, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        os.fchmod(descriptor, mode)  # whatever the umask says
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    new.rename(path)


def main(argv: list[str]) -> None:
    """Make what is missing, hand out what there is. Nothing of it is printed."""
    root = Path(argv[0]) if argv else ROOT
    write_service_files(root, load_or_create(root, lambda: secrets.token_urlsafe(BYTES)))


if __name__ == "__main__":
    main(sys.argv[1:])
