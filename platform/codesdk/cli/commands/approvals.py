"""`codesdk approvals …` and `codesdk grants …`: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json
from codesdk.domain.decisions import GrantKind

approvals_app = typer.Typer(help="List pending approvals and vote on them.", no_args_is_help=True)
grants_app = typer.Typer(help="List and revoke grants, which approve more than one call.", no_args_is_help=True)

OfRule = Annotated[str | None, typer.Option("--rule", help="Only approvals that this rule asked for.")]
OfSession = Annotated[str | None, typer.Option("--session", help="Only this session's.")]
Comment = Annotated[str | None, typer.Option("--comment", "-m", help="Shown to the agent and recorded.")]
ApprovalId = Annotated[str | None, typer.Argument(help="Approval id; or use --rule or --session to select several.")]


@approvals_app.command("list")
def list_approvals(
    *,
    every: Annotated[bool, typer.Option("--all", help="Include approvals that are no longer pending.")] = False,
    rule: OfRule = None,
    session: OfSession = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """List pending approvals, grouped by rule and session."""
    from codesdk.cli.approval import approvals

    approvals.show(every=every, rule=rule, session=session, data_dir=data_dir, as_json=json)


@approvals_app.command("show")
def show_approval(approval: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Show one approval in full: commands, reason, requester, required approvers, expiry."""
    from codesdk.cli.approval import approvals

    approvals.show_one(approval, data_dir=data_dir, as_json=json)


@approvals_app.command("approve")
def approve(
    approval: ApprovalId = None,
    *,
    rule: OfRule = None,
    session: OfSession = None,
    grant: Annotated[
        GrantKind, typer.Option("--grant", help="Also approve further calls of this kind, if the rule offers it.")
    ] = (GrantKind.ONCE),
    lasts: Annotated[str | None, typer.Option("--for", help="How long the grant lasts: 30m, 2h.")] = None,
    uses: Annotated[int | None, typer.Option("--uses", help="How many calls the grant allows.")] = None,
    same_input: Annotated[bool, typer.Option("--same-input", help="Limit the grant to this exact input.")] = False,
    comment: Comment = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Approve exactly the call that is shown; with --grant also further calls of its kind."""
    from codesdk.approvals import GrantRequest, Verdict
    from codesdk.cli.approval import approvals
    from codesdk.cli.console.arguments import parse_duration

    ttl_s = int(parse_duration(lasts)) if lasts else None
    wish = GrantRequest(kind=grant, ttl_s=ttl_s, max_uses=uses, same_input=same_input)
    chosen = approvals.ApprovalSelection(approval=approval, rule=rule, session=session)
    approvals.vote(chosen, Verdict.APPROVE, comment=comment, wish=wish, data_dir=data_dir, as_json=json)


@approvals_app.command("reject")
def reject(
    approval: ApprovalId = None,
    *,
    rule: OfRule = None,
    session: OfSession = None,
    comment: Comment = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Reject a call."""
    from codesdk.approvals import Verdict
    from codesdk.cli.approval import approvals

    chosen = approvals.ApprovalSelection(approval=approval, rule=rule, session=session)
    approvals.vote(chosen, Verdict.REJECT, comment=comment, wish=None, data_dir=data_dir, as_json=json)


@approvals_app.command("watch")
def watch_approvals(*, session: OfSession = None, data_dir: DataDir = None) -> None:
    """Live inbox: shows each approval as it arrives and takes votes with single keys."""
    from codesdk.cli.approval.inbox import watch

    watch(session=session, data_dir=data_dir)


@grants_app.command("list")
def list_grants(
    *,
    every: Annotated[bool, typer.Option("--all", help="Include grants that have ended.")] = False,
    session: OfSession = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """List grants: for whom, until when, uses, who gave them and why."""
    from codesdk.cli.approval import grants

    grants.show(every=every, session=session, data_dir=data_dir, as_json=json)


@grants_app.command("revoke")
def revoke_grant(grant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Revoke a grant; no further call starts under it."""
    from codesdk.cli.approval import grants

    grants.revoke(grant, data_dir=data_dir, as_json=json)
