"""The Python client: sessions, calls, events and approvals of an installation, over its HTTP API.

`Client` and `AsyncClient` have the same methods.
"""

from codesdk.client.aio.client import AsyncClient, AsyncSession
from codesdk.client.connection import NoConnection
from codesdk.client.errors import (
    ApiError,
    ApiUnreachable,
    AuthenticationError,
    CallFailed,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
)
from codesdk.client.models import Approval, Artifact, Call, Event, OpenedSession, SessionInfo, Tool, ToolResult
from codesdk.client.requests import SessionOptions
from codesdk.client.retries import Retries
from codesdk.client.sync.client import Client, Session
from codesdk.client.workspace_archive import WorkspaceRefused

__all__ = [
    "ApiError",
    "ApiUnreachable",
    "Approval",
    "Artifact",
    "AsyncClient",
    "AsyncSession",
    "AuthenticationError",
    "Call",
    "CallFailed",
    "Client",
    "ConflictError",
    "Event",
    "InvalidRequestError",
    "NoConnection",
    "NotFoundError",
    "OpenedSession",
    "PermissionDeniedError",
    "RateLimitedError",
    "Retries",
    "ServerError",
    "Session",
    "SessionInfo",
    "SessionOptions",
    "Tool",
    "ToolResult",
    "WorkspaceRefused",
]
