"""What a runtime can do and how far CodeSDK can control it (contract 000): declared by adapters, never guessed."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import Field, model_validator

from codesdk.domain.content import TranscriptMessage
from codesdk.domain.decisions import PermissionMode
from codesdk.domain.ids import SessionId, TaskId
from codesdk.domain.model import FrozenModel
from codesdk.domain.runtime_input import ToolManifest


class RuntimeName(StrEnum):
    """The contract's four runtimes. Events may have other names; see `RuntimeInfo.name`."""

    CLAUDE_AGENT_SDK = "claude-agent-sdk"
    CODEX_SDK = "codex-sdk"
    GEMINI_CLI_CORE = "gemini-cli-core"
    OPENCODE_SERVER = "opencode-server"


class AuthModel(StrEnum):
    """How the runtime authenticates."""

    OAUTH_LOCAL = "oauth_local"
    API_KEY = "api_key"
    BOTH = "both"
    UNKNOWN = "unknown"


class ToolExecutionModel(StrEnum):
    """Whether CodeSDK's tools run, or the runtime's own."""

    EXTERNAL_MCP = "external_mcp"
    RUNTIME_INTERNAL = "runtime_internal"
    HYBRID = "hybrid"


class PermissionModel(StrEnum):
    """Who decides about tool calls."""

    CODESDK = "codesdk"
    RUNTIME = "runtime"
    HYBRID = "hybrid"


class RuntimeStateModel(StrEnum):
    """Where the runtime keeps its state."""

    IN_PROCESS = "in_process"
    LOCAL_DISK = "local_disk"
    SERVER_SIDE = "server_side"
    HYBRID = "hybrid"
    UNKNOWN = "unknown"


class ResumeModel(StrEnum):
    """How a conversation can be resumed."""

    NATIVE = "native"
    """The runtime has its own durable session."""
    RECONSTRUCT = "reconstruct"
    """CodeSDK rebuilds the context from its transcript."""
    NONE = "none"


class ToolReplaySafety(StrEnum):
    """Whether a tool call may be repeated when a task is resumed."""

    SAFE_REPLAY = "safe_replay"
    REQUIRES_REAPPROVAL = "requires_reapproval"
    UNKNOWN = "unknown"


class McpSupport(StrEnum):
    """Which sides of MCP the runtime supports."""

    NONE = "none"
    CLIENT_ONLY = "client_only"
    SERVER_ONLY = "server_only"
    BOTH = "both"


class McpTransport(StrEnum):
    """The transport that it uses for MCP."""

    STDIO = "stdio"
    SSE = "sse"
    HTTP = "http"


class CancellationModel(StrEnum):
    """How reliable a cancellation is."""

    BEST_EFFORT = "best_effort"
    GUARANTEED = "guaranteed"
    UNKNOWN = "unknown"


class RuntimeIsolationMode(StrEnum):
    """How the runtime is hosted."""

    IN_PROCESS = "in_process"
    SUBPROCESS = "subprocess"
    SERVER_SIDE = "server_side"


class InteractionMode(StrEnum):
    """Whether the runtime's own prompts may wait for a person."""

    INTERACTIVE = "interactive"
    NON_INTERACTIVE = "non_interactive"


class RuntimeCapabilities(FrozenModel):
    """What clients can rely on. Contradictory declarations are rejected."""

    supports_streaming: bool
    supports_tool_calls: bool
    supports_parallel_tool_calls: bool
    supports_stop: bool
    supports_artifacts: bool
    supports_session_create: bool
    supports_session_resume: bool
    supports_usage_reporting: bool
    supports_non_interactive: bool
    max_outstanding_tool_calls: int | None = Field(default=None, ge=1)
    """Tool calls of one task that may be open at once; missing if there is no known limit."""
    auth_model: AuthModel
    tool_execution_model: ToolExecutionModel
    permission_model: PermissionModel
    state_model: RuntimeStateModel
    resume_model: ResumeModel
    tool_replay_safety: ToolReplaySafety
    mcp_support: McpSupport
    mcp_transports: tuple[McpTransport, ...] | None = None
    """In order of preference."""
    cancellation_model: CancellationModel
    supported_isolation_modes: tuple[RuntimeIsolationMode, ...] = Field(min_length=1)
    recommended_isolation_mode: RuntimeIsolationMode

    @model_validator(mode="after")
    def _check_consistent(self) -> Self:
        if self.recommended_isolation_mode not in self.supported_isolation_modes:
            raise ValueError("recommended_isolation_mode is not among supported_isolation_modes")
        if not self.supports_parallel_tool_calls and (self.max_outstanding_tool_calls or 1) > 1:
            raise ValueError("max_outstanding_tool_calls is above 1 without supports_parallel_tool_calls")
        if self.mcp_support is McpSupport.NONE and self.mcp_transports:
            raise ValueError("mcp_transports are named without mcp_support")
        return self


class AuthStatus(FrozenModel):
    """Whether a runtime is logged in and ready; never a token."""

    ok: bool
    logged_in: bool
    auth_model: AuthModel
    account_label: str | None = None
    details: dict[str, Any] | None = None
    """Never contains secrets."""


class LoginHelp(FrozenModel):
    """How a person logs the runtime in, if that needs a person."""

    ok: bool
    instructions: str | None = None


class RuntimeIsolation(FrozenModel):
    """How a run of a runtime is isolated."""

    mode: RuntimeIsolationMode
    home_dir: str | None = None
    xdg_config_home: str | None = None
    xdg_state_home: str | None = None
    xdg_cache_home: str | None = None


class RuntimeEnv(FrozenModel):
    """Where a runtime runs and where its state lives."""

    cwd: str
    env: dict[str, str] = Field(repr=False)
    """May contain secrets: never logged, never stored in an event."""
    credential_namespace: str
    """Whose state this is. With several tenants, it contains the principal's id."""
    isolation: RuntimeIsolation | None = None


class CreateSessionInput(FrozenModel):
    """Options for creating the runtime's own session."""

    title: str | None = None
    model: str | None = None
    permission_mode: PermissionMode | None = None
    runtime_config: dict[str, Any] | None = None
    """Options of that runtime, passed on unchanged."""


class RuntimeSessionHandle(FrozenModel):
    """Our session, and the runtime's own if it has one (an optimisation only)."""

    session_id: SessionId
    runtime_session_id: str | None = None


class ResumedSession(FrozenModel):
    """The outcome of resuming a runtime's own session."""

    ok: bool
    runtime_session_id: str | None = None


class TaskInput(FrozenModel):
    """The input with which an adapter starts a task."""

    task_id: TaskId
    messages: tuple[TranscriptMessage, ...]
    """The compiled context, whole or only what is new."""
    tool_manifest: ToolManifest | None = None
    permission_mode: PermissionMode | None = None
    interaction_mode: InteractionMode = InteractionMode.NON_INTERACTIVE
    runtime_config: dict[str, Any] | None = None
