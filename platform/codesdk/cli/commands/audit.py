"""`codesdk audit …`: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json

audit_app = typer.Typer(
    help="Audit log of changes to tenants, keys, quotas, policy and the record; reads the database directly.",
    no_args_is_help=True,
)


@audit_app.command("list")
def list_entries(
    *,
    tenant: Annotated[str, typer.Option("--tenant", help="Tenant name or id, or `installation`.")] = "default",
    after: Annotated[int, typer.Option("--after", min=0, help="Only entries with a higher number.")] = 0,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """List the entries of an audit chain, oldest first."""
    from codesdk.cli.installation import audit

    audit.show(tenant, after=after, data_dir=data_dir, as_json=json)


@audit_app.command("seal")
def seal_logs(*, data_dir: DataDir = None, json: Json = False) -> None:
    """Seal session logs now; the API process does this hourly."""
    from codesdk.cli.installation import audit

    audit.seal(data_dir=data_dir, as_json=json)


@audit_app.command("verify")
def verify_audit(
    *,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="CHAIN:NUMBER:HASH", help="Chain head that you stored elsewhere; repeatable."),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Rehash every entry and every sealed event, report changes (exit 1), and print the chain heads to store."""
    from codesdk.cli.installation import audit

    return audit.verify(tuple(head or ()), data_dir=data_dir, as_json=json)
