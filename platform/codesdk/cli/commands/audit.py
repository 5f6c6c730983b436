"""`codesdk audit …`: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json

audit_app = typer.Typer(
    help="Who did what to tenants, keys, quotas, policy and the record; straight from the database.",
    no_args_is_help=True,
)


@audit_app.command("list")
def list_entries(
    *,
    tenant: Annotated[str, typer.Option("--tenant", help="Name or id; or `installation`.")] = "default",
    after: Annotated[int, typer.Option("--after", min=0, help="Only entries with a higher number.")] = 0,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """A chain's entries, oldest first."""
    from codesdk.cli.installation import audit

    audit.show(tenant, after=after, data_dir=data_dir, as_json=json)


@audit_app.command("seal")
def seal_logs(*, data_dir: DataDir = None, json: Json = False) -> None:
    """Seal what has grown now; the API process does it every hour."""
    from codesdk.cli.installation import audit

    audit.seal(data_dir=data_dir, as_json=json)


@audit_app.command("verify")
def verify_audit(
    *,
    head: Annotated[
        list[str] | None,
        typer.Option("--head", metavar="CHAIN:NUMBER:HASH", help="An end that was kept elsewhere; may be repeated."),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Hash every entry and every sealed event again, name what was changed (exit 1), and print the ends to keep."""
    from codesdk.cli.installation import audit

    return audit.verify(tuple(head or ()), data_dir=data_dir, as_json=json)
