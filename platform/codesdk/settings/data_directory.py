"""The data directory, and what lies in it unless it is said to be elsewhere: database, Redis socket, keys."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path

import platformdirs
from pydantic import Field

from codesdk.errors import ExitCode, Fault
from codesdk.settings.group import SettingsGroup


class DataDirUnusable(Fault):
    """The data directory cannot be made or written."""

    code = "DATA_DIR_UNUSABLE"
    exit_code = ExitCode.CANNOT_WRITE


def default_data_dir() -> Path:
    """`$XDG_STATE_HOME/codesdk` or its like on this system."""
    return Path(platformdirs.user_state_dir("codesdk"))


class DataDirectorySettings(SettingsGroup):
    """Where an installation keeps what it knows."""

    data_dir: Path = Field(default_factory=default_data_dir)
    """Database, artifacts, sockets, keys of an embedded installation."""
    operator_key_file: Path | None = None
    """Where commands that speak to the API find their key; unset: `operator.key` in the data directory."""
    database_url: str = Field(default="", repr=False)
    """`postgresql://user:password@host/database`, or `sqlite:///path`; empty: SQLite in the data directory."""
    database_answer_s: float = Field(default=30.0, ge=1, le=120)
    """Seconds that a PostgreSQL server may be silent before its callers are refused; locks are waited for two thirds."""
    auto_migrate: bool = True
    """Whether a process that starts brings the database to this version's schema. Off where `codesdk migrate` does it,
    under a database role that may; the others then refuse to start on another schema."""
    redis_url: str = Field(default="", repr=False)
    """Empty: the Unix socket in the data directory."""

    def resolved_database_url(self) -> str:
        """The URL in force."""
        return self.database_url or f"sqlite:///{self.data_dir / 'codesdk.db'}"

    def resolved_redis_url(self) -> str:
        """The URL in force."""
        return self.redis_url or f"unix://{self.data_dir / 'redis.sock'}"

    def artifacts_dir(self) -> Path:
        """Where artifacts are kept, or at least received."""
        return self.data_dir / "artifacts"

    def workspaces_dir(self) -> Path:
        """Where files of capped workspaces lie."""
        return self.data_dir / "workspaces"

    def prepare_data_dir(self) -> None:
        """Make the data directory, private to this user.

        Raises:
            DataDirUnusable: it cannot be made or written.
        """
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = self.data_dir / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise DataDirUnusable(
                f"The data directory {self.data_dir} cannot be written: {error.strerror or error}.",
                advice="Give another with --data-dir (or CODESDK_DATA_DIR), or mend its owner and mode.",
            ) from error

    def instance_id(self) -> str:
        """This installation's id: labels every container and volume that it may remove. Made once, then kept."""
        return self._read_or_create("instance", lambda: "ins" + secrets.token_hex(8))

    def discovery_instance_id(self) -> str:
        """Of sandboxes in which MCP servers are asked what they offer: no worker takes those for its leftovers."""
        return f"{self.instance_id()}-asking"

    def _read_or_create(self, name: str, make: Callable[[], str]) -> str:
        """The content of a private file of the data directory, made once."""
        path = self.data_dir / name
        if not path.exists():
            fresh = path.with_name(f".{name}-{os.getpid()}-{secrets.token_hex(4)}")
            fresh.touch(mode=0o600)
            fresh.write_text(make())
            try:
                os.link(fresh, path)  # whoever links first wins; both processes then read the same
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        return path.read_text().strip()
