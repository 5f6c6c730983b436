"""Tool sources: third-party MCP servers, and the models of their manifests (`kind: mcp`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Classification, SandboxBounds
from codesdk.domain.model import FrozenModel
from codesdk.domain.network import hostnames
from codesdk.domain.network.hostnames import InvalidHostname
from codesdk.registry.manifest import SecretName

KIND = "mcp"
ArgvWord = Annotated[str, Field(max_length=32_768, pattern=r"^[^\x00]*$")]
_ARGV_OR_URL = "A source has either `argv`, its command, or `url`, where it is"
_SANDBOX_KEYS = frozenset({"image", "profile", "shared", "workspace", "env", "secrets", "limits"})
"""Keys that a remote server can't have."""
_HEADER = r"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$"
_RESERVED_HEADERS = frozenset(
    {"host", "connection", "content-length", "content-type", "accept", "transfer-encoding", "te", "trailer", "upgrade",
     "expect", "keep-alive", "mcp-session-id", "mcp-protocol-version", "last-event-id"}
)  # fmt: skip
"""Headers that the protocol or the connection needs, so no manifest can set them."""


class SourceTool(FrozenModel):
    """What the installation says of one tool of the server. What the server says of itself (annotations) is not read."""

    classification: Classification | None = None
    enabled: bool | None = None
    """If false, the tool is off until a policy bundle enables it."""
    timeout_s: float | None = Field(default=None, gt=0, le=24 * 3600)
    serial: bool | None = None
    """Run one call at a time in a session."""


class Header(FrozenModel):
    """A header of every request to a remote server, whose value is a secret of the session's tenant."""

    header: str = Field(pattern=_HEADER)
    secret: SecretName
    prefix: str = Field(default="", max_length=64, pattern=r"^[ -~]*$")
    """Text before the value, such as `Bearer `."""

    @field_validator("header")
    @classmethod
    def _check_not_reserved(cls, value: str) -> str:
        if value.lower() in _RESERVED_HEADERS or value.lower().startswith("proxy-"):
            raise ValueError(f"`{value}` cannot be set; CodeSDK writes it.")
        return value


class SourceManifest(FrozenModel):
    """One MCP server of somebody else's."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="CodeSDK tool source manifest")

    kind: Literal["mcp"]
    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")
    """First part of the names of all its tools: `time` for `time.get_current_time`."""
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    title: str = Field(min_length=1, max_length=100)
    description: str = Field(min_length=1, max_length=4000)
    """For people: what the server is, who wrote it, and why it is trusted."""
    argv: tuple[ArgvWord, ...] = Field(default=(), max_length=64)
    """The server's command, in the image. It serves MCP on standard input and output."""
    url: str | None = Field(default=None, max_length=2000)
    """A remote server that serves MCP over streamable HTTP, in place of `argv`."""
    image: str | None = Field(default=None, pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")
    """One of our images or of the operator's list; by default, the profile's."""
    profile: str = Field(default="default", pattern=r"^[a-z][a-z0-9-]{0,39}$")
    """The profile of the server's sandbox, including the hosts it can reach."""
    shared: bool = False
    """One server for all sessions of the host, without network and secrets. By default, each session has its own."""
    workspace: Literal["none", "read"] = "none"
    """`read`: the server can read the session's workspace. It then has no network and no secrets."""
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")], ArgvWord] = Field(
        default={}, max_length=64
    )
    """Environment variables. Never secrets: these are stored in files and visible in the sandbox."""
    secrets: tuple[SecretName, ...] = Field(default=(), max_length=8)
    """Secrets that the egress proxy adds to the server's requests by the profile's rules. The server never sees them."""
    headers: tuple[Header, ...] = Field(default=(), max_length=8)
    """Headers for a remote server."""
    limits: SandboxBounds = SandboxBounds()
    """Bounds on the server's sandbox. They can only tighten the profile."""
    start_s: float = Field(default=30.0, gt=0, le=600)
    """Seconds in which the server must answer the handshake and list its tools."""
    idle_s: float = Field(default=300.0, ge=1, le=24 * 3600)
    """Seconds without a call after which the server is stopped."""
    timeout_s: float = Field(default=60.0, gt=0, le=24 * 3600)
    """Upper bound on the wall time of one call, in seconds."""
    classification: Classification = Classification.DANGEROUS
    """Classification of each tool for which `tools` sets no other."""
    enabled: bool = True
    serial: bool | None = None
    tools: dict[Annotated[str, Field(max_length=200)], SourceTool] = Field(default={}, max_length=256)
    """Settings by the server's tool names."""

    def contradiction(self) -> tuple[str, str] | None:
        """Return a key that conflicts with the others, and why; None if there is no conflict."""
        of_sandbox = next(iter(sorted(_SANDBOX_KEYS & self.model_fields_set)), "")
        sees = self.workspace == "read"
        wrong: dict[tuple[str, str], bool] = {
            ("name", f"{_ARGV_OR_URL}; this one has neither."): not self.argv and self.url is None,
            ("url", f"{_ARGV_OR_URL}; this one has both."): bool(self.argv) and self.url is not None,
            (of_sandbox, f"`{of_sandbox}` is for a server in a sandbox; this one has a `url`."): (
                self.url is not None and bool(of_sandbox)
            ),
            ("headers", "`headers` are for a server with a `url`; in a sandbox the profile's egress adds them."): (
                self.url is None and bool(self.headers)
            ),
            ("workspace", "A shared server belongs to no session, so it can't see a workspace."): sees and self.shared,
            ("workspace", "A server that sees a session's workspace has no network, so it can have no `secrets`."): (
                sees and bool(self.secrets)
            ),
            ("secrets", "A shared server has no network, so it can have no `secrets`: it would mix tenants."): (
                self.shared and bool(self.secrets)
            ),
        }
        return next((said for said, is_so in wrong.items() if is_so), None)

    @field_validator("url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            host, _ = hostnames.canonical_host(parts.hostname or ""), parts.port
        except (InvalidHostname, ValueError) as error:
            raise ValueError(f"this is not a valid host: {error}.") from error
        if parts.scheme not in ("https", "http") or not host or "@" in parts.netloc or parts.fragment:
            raise ValueError("an https:// URL, without a password and without a fragment.")
        return value

    def settings_for(self, tool: str) -> SourceTool:
        """Return the settings of one tool: its own, with the source's as defaults."""
        own = self.tools.get(tool, SourceTool())
        given = {name: value for name, value in own if value is not None}
        kind = given.get("classification", self.classification)
        serial = kind is not Classification.READ_ONLY if self.serial is None else self.serial
        whole = {
            "classification": kind,
            "enabled": self.enabled,
            "timeout_s": self.timeout_s,
            "serial": serial,
            **given,
        }
        return SourceTool.model_validate(whole)


@dataclass(frozen=True)
class Source:
    """A tool source with its pinned tools."""

    manifest: SourceManifest
    pinned: dict[str, str]
    """Hash of each pinned tool, by the server's name for it."""
    hash: str
    """`sha256:` of the manifest and the pinned tools."""

    @property
    def name(self) -> str:
        """The source's name, which is the namespace of its tools."""
        return self.manifest.name


def make_source(manifest: SourceManifest, pinned: dict[str, str]) -> Source:
    """Create a source with its hash."""
    return Source(manifest, pinned, content_hash([manifest.model_dump(mode="json"), pinned]))


def running_hash(manifest: SourceManifest) -> str:
    """Return `sha256:` of where the server is and how it runs, which its calls depend on in addition to the tool."""
    fields = {"argv", "url", "image", "profile", "shared", "env", "secrets", "headers", "limits"}
    fields |= {"workspace"} if manifest.workspace != "none" else set()  # keeps hashes from before this key
    return content_hash(manifest.model_dump(mode="json", include=fields))


def source_schema() -> dict[str, Any]:
    """Return the JSON Schema of a source's manifest, for editors."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": draft, **SourceManifest.model_json_schema(by_alias=True)}
