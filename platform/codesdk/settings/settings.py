"""The settings of an installation, from `CODESDK_*` environment variables."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import platformdirs
from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
)

from codesdk.errors import ExitCode, Fault

CREDENTIALS_DIR = "CODESDK_CREDENTIALS_DIR"
"""Names a directory of files `codesdk_<setting>`, for values that must stay out of a process's environment."""
MAX_WARM = 64
"""Warm sandboxes of all profiles together: each holds 7 MB and a container's processes."""
MIN_KEY_CHARS = 32
"""Characters of a sealing key; as base64 that is 192 bits."""
_HOST = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]", re.ASCII)
_PACKAGE = Path(__file__).resolve().parent.parent


class SettingWrong(Fault):
    """An option or a CODESDK_* variable has an invalid value."""

    code = "SETTING_WRONG"
    status = 400
    exit_code = ExitCode.USAGE


class PortTaken(Fault):
    """Another program listens on the API's address."""

    code = "PORT_TAKEN"
    status = 409
    exit_code = ExitCode.CANNOT_WRITE


class DataDirUnusable(Fault):
    """The data directory can't be created or written."""

    code = "DATA_DIR_UNUSABLE"
    exit_code = ExitCode.CANNOT_WRITE


def default_data_dir() -> Path:
    """`$XDG_STATE_HOME/codesdk`, or the equivalent on this system."""
    return Path(platformdirs.user_state_dir("codesdk"))


def _shipped(name: str) -> Path:
    """A folder that ships with the product: next to `platform/` in a checkout, inside the package in a wheel."""
    checkout = _PACKAGE.parent.parent / name
    return checkout if checkout.is_dir() else _PACKAGE / "_data" / name


def shipped_policies(name: str) -> Path | None:
    """The directory of the policy bundle of that name that ships with the product; None if there is none."""
    found = _shipped("policies") / name
    return found if name.isidentifier() and found.is_dir() else None


class PolicyTests(StrEnum):
    """What becomes of policy files that fail their own tests."""

    ENFORCE = "enforce"
    """They don't take effect; the last valid files stay in force."""
    WARN = "warn"
    """They take effect, and the log has a warning."""


class Settings(BaseSettings):
    """The settings that all processes of one installation share. One field per `CODESDK_*` variable."""

    model_config = SettingsConfigDict(env_prefix="CODESDK_", env_ignore_empty=True, frozen=True, extra="ignore")

    # Data directory, database and Redis
    data_dir: Path = Field(default_factory=default_data_dir)
    """Database, artifacts, sockets and keys of an embedded installation."""
    operator_key_file: Path | None = None
    """File with the key that commands send to the API; unset: `operator.key` in the data directory."""
    database_url: str = Field(default="", repr=False)
    """`postgresql://user:password@host/database`, or `sqlite:///path`; empty: SQLite in the data directory."""
    database_answer_s: float = Field(default=30.0, ge=1, le=120)
    """Seconds without an answer from PostgreSQL after which a statement fails; the lock timeout is two thirds of it."""
    auto_migrate: bool = True
    """Whether a process migrates the database to this version's schema when it starts. Turn it off where `codesdk migrate`
    runs with a role that may change the schema; processes then refuse to start on any other schema."""
    redis_url: str = Field(default="", repr=False)
    """Empty: the Unix socket in the data directory."""

    # Sandbox engine
    docker_host: str = ""
    """Empty: DOCKER_HOST, else the engine's default socket."""
    docker_tls_ca: Path | None = None
    """CA certificate (PEM) that verifies an engine at `tcp://…`. Unset: `ca.pem` in DOCKER_CERT_PATH, if that is set.
    Required for an engine on another machine."""
    docker_tls_cert: Path | None = None
    """Client certificate (PEM) for such an engine. Unset: `cert.pem` in DOCKER_CERT_PATH."""
    docker_tls_key: Path | None = None
    """Its private key. Unset: `key.pem` in DOCKER_CERT_PATH."""
    local_sandbox: Literal["", "on", "plain", "off"] = ""
    """`on`: sandboxes are processes of this machine behind bubblewrap instead of containers, and protect it less. `plain`:
    without bubblewrap. `off`: forbids both. Empty: containers, unless a command passes --sandbox."""

    # API address
    host: str = "127.0.0.1"
    """Address that the API listens on. The default is loopback only."""
    port: int = Field(default=8765, ge=0, le=65535)
    public_url: str = ""
    """URL at which clients reach the API through a proxy: `https://codesdk.example.com`. Used in links and MCP URLs, and
    accepted as a `Host`. Empty: the address of the request."""
    allowed_hosts: str = ""
    """More accepted `Host` and `Origin` names, separated by commas. Loopback and `host` are always accepted."""

    # Folders of policies, tools, images and profiles
    policies_dir: Path = Field(default_factory=lambda: _shipped("policies") / "default")
    tenant_policies_dir: str = ""
    """Directory with one policy bundle per tenant that adds its own rules, named by tenant id; empty: none."""
    policy_tests: PolicyTests = PolicyTests.ENFORCE
    """Whether policy files that fail their own tests take effect."""
    tenant_tools_dir: str = ""
    """Directory with one folder of tool manifests per tenant, named by tenant id; empty: none."""
    registry_dir: Path = Field(default_factory=lambda: _shipped("tool-registry"))
    images_dir: Path = Field(default_factory=lambda: _shipped("sandbox-images"))
    profiles_dir: Path = Field(default_factory=lambda: _shipped("sandbox-images") / "profiles")

    # Artifacts and retention
    artifacts_url: str = ""
    """`s3://bucket/prefix`; empty: `artifacts` in the data directory."""
    s3_endpoint: str = ""
    """URL of an S3-compatible server; empty: Amazon S3."""
    s3_region: str = ""
    s3_access_key: str = ""
    """Empty: environment, profile or instance role, as the AWS tools look for them."""
    s3_secret_key: str = Field(default="", repr=False)
    artifact_max_bytes: int = Field(default=5 * 1024**3, gt=0)
    """Maximum bytes of one artifact."""
    retention_days: float = Field(default=0.0, ge=0)
    """Days after which a closed session is removed with its log and artifacts; 0: never."""

    # Keys, secrets and lists that only the operator writes
    sealing_key: str = Field(default="", repr=False)
    """Encrypts secrets in the database and signs links: at least 32 random bytes, as text. Empty: the file `sealing.key` in
    the data directory, created on first use. All processes of an installation need the same key."""
    secrets_dir: str = ""
    """Secrets that the egress proxy adds, one folder per tenant; empty: `secrets` in the data directory."""
    images_file: str = ""
    """The operator's image allowlist; empty: `images.yaml` in the data directory, if it exists."""
    logins_file: str = ""
    """The operator's list of token issuers; empty: `logins.yaml` in the data directory, if it exists."""

    # The worker's host: threads, capacity, snapshots, warm sandboxes
    worker_threads: int = Field(default=16, ge=1, le=256)
    """Calls of one tenant that a worker runs at once. A quarter as many more threads are reserved for other tenants."""
    host_name: str = Field(default="local", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")
    """Name of the worker's host: one per engine, unique in the installation."""
    host_labels: Annotated[dict[str, str], NoDecode] = {}
    """Labels that sessions can select their host by: `zone=a,gpu=yes`."""
    host_memory_bytes: int = Field(default=0, ge=0)
    """Memory and swap that the host's sandboxes may be given in total; 0: no limit."""
    host_cpus: float = Field(default=0.0, ge=0)
    """CPUs that the host's sandboxes may be given in total; 0: no limit."""
    host_sessions: int = Field(default=0, ge=0)
    """Sessions that the host may have, including closed ones whose sandbox isn't removed yet; 0: no limit."""
    host_lease_s: float = Field(default=30.0, ge=0)
    """Seconds without a heartbeat after which a host is lost and its sessions end, unless its worker was stopped in order;
    ten times as long while no other host sends heartbeats; 0: never."""
    snapshots: bool = False
    """Whether sessions take workspace snapshots when their creator doesn't choose."""
    snapshot_bytes: int = Field(default=256 * 1024**2, gt=0)
    """Maximum bytes of one snapshot; larger workspaces aren't captured."""
    snapshot_every_s: float = Field(default=60.0, gt=0)
    """Minimum seconds between two snapshots of one session."""
    warm_pool: int = Field(default=1, ge=0, le=MAX_WARM)
    """Started sandboxes of the default profile kept ready for new sessions; 0: none."""
    warm_pools: Annotated[dict[str, Annotated[int, Field(ge=0)]], NoDecode] = {}
    """Warm sandboxes of other profiles, by profile name: `build=2,node=1`."""

    # Sessions and approvals
    session_ttl_s: float = Field(default=24 * 3600.0, gt=0)
    """Lifetime of a session token in seconds."""
    poll_s: float = Field(default=0.5, gt=0)
    """Seconds between polls of the database when no Redis hint arrives."""
    wait_s: float = Field(default=50.0, gt=0)
    """Seconds that an MCP call waits for a person before it returns "still waiting": below 60 s, the shortest default
    timeout of the agent CLIs that we measured (OpenCode, Kimi)."""
    gone_client_grace_s: float = Field(default=10.0, ge=0)
    """Seconds that a running call continues after its last client left without an answer; the same call joins it
    meanwhile. The session's writes wait for it."""
    asks_per_minute: int = Field(default=120, ge=0, le=10_000)
    """Approval requests that one session may make per minute; more are denied (`TOO_MANY_QUESTIONS`). 0: no limit. A person
    answers one in a few seconds; agents with parallel calls were seen to make ten at once."""
    asks_per_minute_of_tenant: int = Field(default=1200, ge=0, le=10_000)
    """The same limit for all sessions of a tenant together."""
    asks_waiting: int = Field(default=100, ge=0)
    """Calls of one session that may wait for approval at once, so that it can't use up `quota_queued_calls`."""
    streams_of_tenant: int = Field(default=1000, ge=0)
    """Event streams that a tenant may have open at once on one API process; 0: no limit."""
    upload_bytes_of_tenant: int = Field(default=20 * 1024**3, ge=0)
    """Bytes of a tenant's unfinished uploads together on one API process; 0: no limit."""
    log_bytes_per_s: int = Field(default=1024**2, ge=0)
    """Bytes per second by which one session's log and calls may grow in the long run; 0: no limit."""
    log_burst_bytes: int = Field(default=64 * 1024**2, gt=0)
    """Bytes that they may grow by before that rate applies."""
    trust_clients: bool = False
    """Whether an approver may answer through the agent's own client (MCP elicitation). Such a client could answer by itself.
    It votes only as the session's principal."""
    read_only_hints: bool = True
    """Whether MCP clients learn which tools are read-only. Many run such tools without asking their user."""
    allow_yolo: bool = False
    """Whether new tenants may use the permission mode `yolo`; `codesdk tenants allow-yolo` changes it per tenant."""

    # Webhooks, mail and remote MCP servers
    webhook_threads: int = Field(default=4, ge=0, le=64)
    """Threads of an API process that send webhooks, chat messages and mail; 0: this process sends none."""
    webhook_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = ()
    """Non-public networks that webhooks may be sent to: `10.20.0.0/16`, separated by commas."""
    source_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = ()
    """Non-public networks that remote MCP servers may be in; TLS is optional there."""
    webhook_allow_http: bool = False
    """Whether a target may be `http://`, which others on the network path can read and change."""
    webhook_log_days: float = Field(default=30.0, gt=0)
    """Days that finished deliveries stay in the log."""
    smtp_url: str = Field(default="", repr=False)
    """`smtps://user:password@host:465`, or `smtp://host:587` (STARTTLS where offered); empty: no mail."""
    mail_from: str = ""
    """Sender address of mail."""

    # Default quotas of a tenant; 0: no limit. Named after `domain.quotas.Resource`.
    quota_sessions: int = Field(default=500, ge=0)
    """Open sessions."""
    quota_queued_calls: int = Field(default=1000, ge=0)
    """Calls that wait for approval or for a worker."""
    quota_running_calls: int = Field(default=100, ge=0)
    """Calls that run at once; more stay queued."""
    quota_artifact_bytes: int = Field(default=50 * 1024**3, ge=0)
    quota_log_bytes: int = Field(default=20 * 1024**3, ge=0)
    """Bytes of its sessions' events, and of its calls' inputs, results and approvals."""
    quota_api_keys: int = Field(default=1000, ge=0)
    quota_sandbox_memory_bytes: int = Field(default=512 * 1024**3, ge=0)
    """Sum over the profiles of its sandboxes."""
    quota_sandbox_millicpus: int = Field(default=1_024_000, ge=0)
    """Sum over the profiles of its sandboxes, in thousandths of a CPU."""
    quota_workspace_bytes: int = Field(default=2 * 1024**4, ge=0)
    """Sum of the maximum sizes of its workspaces."""
    quota_egress_bytes_a_day: int = Field(default=0, ge=0)
    """Bytes through its sandboxes' proxy, both directions, per UTC day."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (the signature is pydantic's)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Arguments first, then the environment, then the files of the credentials directory."""
        credentials = os.environ.get(CREDENTIALS_DIR)
        files = (SecretsSettingsSource(settings_cls, secrets_dir=credentials),) if credentials else ()
        return (init_settings, env_settings, *files)

    @field_validator("public_url")
    @classmethod
    def _check_public_url(cls, given: str) -> str:
        if not given:
            return given
        parts = urlsplit(given)
        _ = parts.port  # raises ValueError for an invalid port
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in given:
            raise ValueError("it must be a URL like https://codesdk.example.com, without a query or a password")
        return given.rstrip("/")

    @field_validator("allowed_hosts")
    @classmethod
    def _check_allowed_hosts(cls, given: str) -> str:
        for name in _split_names(given):
            if _HOST.fullmatch(name) is None:
                raise ValueError(f"{name!r} is not a host name (no scheme, no port, no wildcards)")
        return given

    @field_validator("sealing_key")
    @classmethod
    def _check_sealing_key(cls, given: str) -> str:
        if given and len(given) < MIN_KEY_CHARS:
            raise ValueError(
                f"it has fewer than {MIN_KEY_CHARS} characters; generate one with `openssl rand -base64 32`"
            )
        return given

    @field_validator("host_labels", mode="before")
    @classmethod
    def _read_labels(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if given.startswith("{"):
            return json.loads(given)  # a parent process passes its settings on as JSON
        pairs = [part.partition("=") for part in given.replace(",", " ").split()]
        if any(not (name and sign) for name, sign, _ in pairs):
            raise ValueError("write labels as `zone=a,gpu=yes`")
        return {name: value for name, _, value in pairs}

    @field_validator("warm_pools", mode="before")
    @classmethod
    def _read_pool_sizes(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if given.startswith("{"):
            return json.loads(given)
        pairs = [part.partition("=") for part in given.replace(",", " ").split()]
        if any(not size.isdecimal() for _, _, size in pairs):
            raise ValueError("write sizes as `build=2,node=1`")
        return {name: int(size) for name, _, size in pairs}

    @field_validator("webhook_networks", "source_networks", mode="before")
    @classmethod
    def _read_networks(cls, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        if given.startswith("("):  # as a parent process passes it on: `(IPv4Network('10.0.0.0/8'),)`
            return tuple(re.findall(r"[0-9a-fA-F:.]+/[0-9]+", given))
        return tuple(_split_names(given))

    @field_validator("smtp_url")
    @classmethod
    def _check_smtp_url(cls, given: str) -> str:
        parts = urlsplit(given)
        _ = parts.port  # raises ValueError for an invalid port
        if given and (parts.scheme not in ("smtp", "smtps") or not parts.hostname):
            raise ValueError("it must be a URL like smtps://user:password@mail.example.com:465")
        return given

    @model_validator(mode="after")
    def _check_warm_pools(self) -> Self:
        if sum(self.pool_sizes("").values()) > MAX_WARM:
            raise ValueError(f"warm_pool and warm_pools together are more than {MAX_WARM}")
        return self

    @model_validator(mode="after")
    def _check_mail(self) -> Self:
        if bool(self.smtp_url) != bool(self.mail_from) or (self.mail_from and "@" not in self.mail_from):
            raise ValueError("set both smtp_url and mail_from (a mail address), or neither")
        return self

    @property
    def is_local(self) -> bool:
        """Whether sandboxes are processes of this machine."""
        return self.local_sandbox in ("on", "plain")

    def names(self) -> tuple[str, ...]:
        """The `Host` names that the API accepts besides loopback and `host`."""
        public = urlsplit(self.public_url).hostname
        own = () if public is None else (f"[{public}]" if ":" in public else public,)
        return tuple(dict.fromkeys((*own, *_split_names(self.allowed_hosts))))

    def pool_sizes(self, default: str) -> dict[str, int]:
        """Profile -> warm sandboxes. `default`: name of the default profile, which `warm_pools` may override."""
        return {default: self.warm_pool, **self.warm_pools}

    def resolved_database_url(self) -> str:
        """`database_url`, or the SQLite file in the data directory."""
        return self.database_url or f"sqlite:///{self.data_dir / 'codesdk.db'}"

    def has_database(self) -> bool:
        """Whether a database URL is set, or the SQLite file in the data directory exists."""
        return bool(self.database_url) or (self.data_dir / "codesdk.db").exists()

    def resolved_redis_url(self) -> str:
        """`redis_url`, or the Unix socket in the data directory."""
        return self.redis_url or f"unix://{self.data_dir / 'redis.sock'}"

    def resolved_sealing_key(self) -> bytes:
        """`sealing_key`, or the one in the data directory, created on first use."""
        return (self.sealing_key or self._read_or_create("sealing.key", lambda: secrets.token_urlsafe(32))).encode()

    def resolved_secrets_dir(self) -> Path:
        """The directory of egress secrets, whether or not it exists."""
        return Path(self.secrets_dir) if self.secrets_dir else self.data_dir / "secrets"

    def resolved_images_file(self) -> Path:
        """The image allowlist, whether or not it exists."""
        return Path(self.images_file) if self.images_file else self.data_dir / "images.yaml"

    def resolved_logins_file(self) -> Path:
        """The list of issuers, whether or not it exists."""
        return Path(self.logins_file) if self.logins_file else self.data_dir / "logins.yaml"

    def tenant_policies(self) -> Path | None:
        """The directory of tenants' policy bundles, if there is one."""
        return Path(self.tenant_policies_dir) if self.tenant_policies_dir else None

    def enforces_policy_tests(self) -> bool:
        """Whether policy files must pass their own tests to take effect."""
        return self.policy_tests is PolicyTests.ENFORCE

    def tenant_tools(self) -> Path | None:
        """The directory of tenants' tool manifests, if there is one."""
        return Path(self.tenant_tools_dir) if self.tenant_tools_dir else None

    def artifacts_dir(self) -> Path:
        """Where artifacts are stored, or with S3 spooled."""
        return self.data_dir / "artifacts"

    def workspaces_dir(self) -> Path:
        """Where the disk files of capped workspaces are."""
        return self.data_dir / "workspaces"

    def prepare_data_dir(self) -> None:
        """Create the data directory, private to this user.

        Raises:
            DataDirUnusable: it can't be created or written.
        """
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = self.data_dir / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise DataDirUnusable(
                f"The data directory {self.data_dir} cannot be written: {error.strerror or error}.",
                advice="Choose another one with --data-dir (or CODESDK_DATA_DIR), or fix its owner and mode.",
            ) from error

    def instance_id(self) -> str:
        """The installation's id, which labels its containers and volumes. Created on first use, then kept."""
        return self._read_or_create("instance", lambda: "ins" + secrets.token_hex(8))

    def discovery_instance_id(self) -> str:
        """The id that labels sandboxes of MCP tool discovery, so that no worker removes them as leftovers."""
        return f"{self.instance_id()}-asking"

    def _read_or_create(self, name: str, make: Callable[[], str]) -> str:
        """The content of a private file in the data directory, created on first use."""
        path = self.data_dir / name
        if not path.exists():
            fresh = path.with_name(f".{name}-{os.getpid()}-{secrets.token_hex(4)}")
            fresh.touch(mode=0o600)
            fresh.write_text(make())
            try:
                os.link(fresh, path)  # the first process to link wins; both then read the same file
            except FileExistsError:
                pass
            finally:
                fresh.unlink()
        return path.read_text().strip()


def read_settings(**given: Any) -> Settings:
    """The settings from arguments and environment; arguments win.

    Raises:
        SettingWrong: names the first invalid setting.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = "_".join(str(part) for part in first["loc"])
        raise SettingWrong(
            f"The setting {name} is wrong: {first['msg'].removeprefix('Value error, ').lower()}.",
            advice=f"Correct the option, or the variable CODESDK_{name.upper()}.",
        ) from error


def _split_names(given: str) -> list[str]:
    return [name.strip().lower() for name in given.split(",") if name.strip()]
