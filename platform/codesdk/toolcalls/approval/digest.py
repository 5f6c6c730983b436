"""What an approval binds: everything that decides what would run, as one digest (DESIGN: approvals)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codesdk.approvals import GrantContext
from codesdk.domain.calls import ToolCall
from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Decision
from codesdk.registry import Tool
from codesdk.toolcalls.previews.preview import Preview
from codesdk.toolcalls.records.call_record import SessionFacts


def approval_digest(
    call: ToolCall,
    behaviour_hash: str,
    decision: Decision,
    facts: SessionFacts,
    *,
    bound: Mapping[str, Any] | None = None,
    preview: Preview | None = None,
) -> str:
    """`sha256:` over tenant, session, principal, tool, input, image, profile, the rules that asked, and what is in doubt.

    The tool counts with all that decides what it does (`Tool.behaviour_hash`): its schema, its command, its class.

    Each rule counts with its own hash. The bundle's is left out on purpose: a change of some other rule must not void a
    pending question. `bound`: more facts that what would run depends on, as JSON values (hashes of files, say).
    `preview`: what people were shown of a trial.
    """
    subject = facts.subject
    return content_hash(
        {
            "tenant": subject.tenant_id,
            "session": subject.session_id,
            "principal": subject.principal_id,
            "call": call.identity.tool_call_id,
            "attempt": call.identity.attempt,
            "tool": call.name,
            "behaviour": behaviour_hash,
            "input": call.identity.input_hash,
            "image": facts.image,
            "profile": facts.profile,
            "rules": decision.rule_hashes,
            "obligations": decision.obligations.model_dump(mode="json"),
            **({"doubt": decision.doubt} if decision.doubt else {}),
            **({"bound": dict(bound)} if bound else {}),
            **({"preview": preview.model_dump(mode="json")} if preview else {}),
        }
    )


def grant_query_for(call: ToolCall, tool: Tool, facts: SessionFacts, decision: Decision) -> GrantContext:
    """What a grant must be about to let this call through."""
    return GrantContext(
        call=call,
        subject=facts.subject,
        rules=decision.rule_hashes,
        behaviour_hash=tool.behaviour_hash,
        image=facts.image,
        profile=facts.profile,
    )
