"""A running installation, as `codesdk up` starts it, with its own data directory and the acceptance bundle."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from acceptance.agents.agent import Agent
from codesdk.approvals import ApprovalState, Verdict
from codesdk.cli.api_client import ApiClient
from codesdk.domain.decisions import PermissionMode
from codesdk.sessions import NewSession

APPROVAL_LIMIT_S = 60.0
"""From the start of an agent to its first question: starting takes the slowest of them some seconds."""
POLICIES = Path(__file__).parent / "policies"


class Running:
    """A started stack, through its HTTP API alone."""

    def __init__(self, daemon: ApiClient) -> None:
        self._daemon = daemon

    @property
    def url(self) -> str:
        """Of the MCP host."""
        return f"{self._daemon.url}/mcp"

    def open_session(self, files: Mapping[str, str], mode: PermissionMode = PermissionMode.AUTO) -> tuple[str, str]:
        """A session whose workspace starts with these files; its id and its token."""
        seed = self._daemon.upload(_tar(files), "workspace.tar", "application/x-tar").id if files else None
        opened = self._daemon.open_session(NewSession(permission_mode=mode, seed_artifact=seed))
        return opened.session.id, opened.token

    def close_session(self, session: str) -> None:
        """End it."""
        self._daemon.close_session(session)

    def events(self, session: str) -> list[dict[str, Any]]:
        """The log so far."""
        return [event.model_dump(mode="json") for event in self._daemon.events(session)]

    def pending(self, session: str) -> Iterable[str]:
        """Ids of the approvals that wait."""
        return [approval.id for approval in self._daemon.approvals(ApprovalState.PENDING, session)]

    def approve(self, approval: str) -> None:
        """Say yes, as the operator."""
        self._daemon.vote(self._daemon.approval(approval), Verdict.APPROVE)

    def grant(self, approval: str) -> None:
        """Say yes to this call and to others of its kind, as long as the session is open."""
        digest = self._daemon.approval(approval).digest
        vote = {"verdict": "approve", "digest": digest, "grant": {"kind": "session"}}
        self._daemon.request("POST", f"/v1/approvals/{approval}/decision", json=vote)

    def reject(self, approval: str) -> None:
        """Say no, as the operator."""
        self._daemon.vote(self._daemon.approval(approval), Verdict.REJECT)

    def cancel(self, approval: str) -> None:
        """End the call that waits for this approval."""
        asked = self._daemon.approval(approval)
        self._daemon.request("POST", f"/v1/sessions/{asked.session_id}/calls/{asked.tool_call_id}/cancel")


def wait_for_approval(stack: Running, session: str, agent: Agent) -> str:
    """The one approval that waits.

    Raises:
        AssertionError: none came in time, or the agent ended before.
    """
    deadline = time.monotonic() + APPROVAL_LIMIT_S
    while time.monotonic() < deadline:
        assert agent.running, agent.finish()
        pending = list(stack.pending(session))
        assert len(pending) <= 1
        if pending:
            return pending[0]
        time.sleep(0.05)
    raise AssertionError(f"No approval was asked for within {APPROVAL_LIMIT_S:.0f} s")


def _tar(files: Mapping[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()
