"""OAuth metadata for clients that log in: protected resource metadata (RFC 9728) and challenges (RFC 6750)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.types import Scope

MCP_PATH = "/mcp"
METADATA_PATH = f"/.well-known/oauth-protected-resource{MCP_PATH}"


class ProtectedResource:
    """The MCP endpoint as an OAuth protected resource."""

    def __init__(
        self, public_url: str, issuers: Callable[[], Sequence[str]], scopes: Callable[[], Sequence[str]]
    ) -> None:
        """`public_url`: empty to use the request's own address. `issuers`, `scopes`: return the current ones."""
        self._public_url = public_url
        self._issuers = issuers
        self._scopes = scopes

    def metadata(self, scope: Scope) -> dict[str, Any] | None:
        """The metadata document; None if no issuer is configured."""
        issuers, scopes = list(self._issuers()), list(dict.fromkeys(self._scopes()))
        if not issuers:
            return None
        document: dict[str, Any] = {
            "resource": self._base(scope) + MCP_PATH,
            "resource_name": "CodeSDK",
            "authorization_servers": issuers,
            "bearer_methods_supported": ["header"],
        }
        return {**document, "scopes_supported": scopes} if scopes else document

    def challenge(self, scope: Scope, error: str | None) -> str:
        """The value of `WWW-Authenticate`. `error`: an RFC 6750 error code; None if the request had no credential."""
        parts = {"realm": "codesdk"}
        if error is not None:
            parts["error"] = error
        if self._issuers():
            parts["resource_metadata"] = self._base(scope) + METADATA_PATH
            if scopes := dict.fromkeys(self._scopes()):
                parts["scope"] = " ".join(scopes)
        return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parts.items())

    def _base(self, scope: Scope) -> str:
        if self._public_url:
            return self._public_url
        # HostHeaderCheck has verified it.
        host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "")
        return f"{scope.get('scheme', 'http')}://{host}"
