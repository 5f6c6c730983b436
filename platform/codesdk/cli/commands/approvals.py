"""The commands of approvals and grants: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json
from codesdk.domain.decisions import GrantKind

approvals_app = typer.Typer(help="What waits for a person, and answering it.", no_args_is_help=True)
grants_app = typer.Typer(help="What people let through beyond one call.", no_args_is_help=True)

OfRule = Annotated[str | None, typer.Option("--rule", help="Those that this rule asks about.")]
OfSession = Annotated[str | None, typer.Option("--session", help="Those of this session.")]
Comment = Annotated[str | None, typer.Option("--comment", "-m", help="Told to the agent, and recorded.")]
ApprovalId = Annotated[str | None, typer.Argument(help="Its id; or give --rule or --session for all that they name.")]


@approvals_app.command("list")
def list_approvals(
    *,
    every: Annotated[bool, typer.Option("--all", help="Not only those that wait.")] = False,
    rule: OfRule = None,
    session: OfSession = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What waits for a person: many of one rule and session as one line."""
    from codesdk.cli.approval import approvals

    approvals.show(every=every, rule=rule, session=session, data_dir=data_dir, as_json=json)


@approvals_app.command("show")
def show_approval(approval: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """One, whole: every command that would run, why it is asked, who asks, whose yes it takes, until when."""
    from codesdk.cli.approval import approvals

    approvals.show_one(approval, data_dir=data_dir, as_json=json)


@approvals_app.command("approve")
def approve(
    approval: ApprovalId = None,
    *,
    rule: OfRule = None,
    session: OfSession = None,
    grant: Annotated[GrantKind, typer.Option("--grant", help="Also calls of its kind, if the rule offers it.")] = (
        GrantKind.ONCE
    ),
    lasts: Annotated[str | None, typer.Option("--for", help="How long the grant lives: 30m, 2h.")] = None,
    uses: Annotated[int | None, typer.Option("--uses", help="How many calls the grant lets through.")] = None,
    same_input: Annotated[bool, typer.Option("--same-input", help="The grant is for this very input.")] = False,
    comment: Comment = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Let exactly what is shown run, once, or with --grant calls of its kind too."""
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
    """Do not let it run."""
    from codesdk.approvals import Verdict
    from codesdk.cli.approval import approvals

    chosen = approvals.ApprovalSelection(approval=approval, rule=rule, session=session)
    approvals.vote(chosen, Verdict.REJECT, comment=comment, wish=None, data_dir=data_dir, as_json=json)


@approvals_app.command("watch")
def watch_approvals(*, session: OfSession = None, data_dir: DataDir = None) -> None:
    """A live inbox: each question as it comes, answered with one key."""
    from codesdk.cli.approval.inbox import watch

    watch(session=session, data_dir=data_dir)


@grants_app.command("list")
def list_grants(
    *,
    every: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    session: OfSession = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What is granted: for whom, until when, how often it was used, who gave it and why."""
    from codesdk.cli.approval import grants

    grants.show(every=every, session=session, data_dir=data_dir, as_json=json)


@grants_app.command("revoke")
def revoke_grant(grant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """End one: from now on nothing starts by it."""
    from codesdk.cli.approval import grants

    grants.revoke(grant, data_dir=data_dir, as_json=json)
