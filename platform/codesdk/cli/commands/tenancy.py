"""`codesdk keys …`, `tenants …` and `groups …`: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json
from codesdk.tenancy.principal import Role

keys_app = typer.Typer(help="Manage API keys of the running daemon, or of the data directory.", no_args_is_help=True)
tenants_app = typer.Typer(help="Manage tenants of the running daemon, or of the data directory.", no_args_is_help=True)

groups_app = typer.Typer(
    help="Manage groups of approvers of the running daemon, or of the data directory.",
    no_args_is_help=True,
)

OfTenant = Annotated[str, typer.Option("--tenant", help="Tenant name or id.")]


@keys_app.command("create")
def create_key(
    principal: Annotated[
        str, typer.Argument(help="Principal name or id; created if it doesn't exist and --role is given.")
    ],
    *,
    role: Annotated[list[Role] | None, typer.Option("--role", help="Role of a new principal; repeatable.")] = None,
    program: Annotated[bool, typer.Option("--program", help="The new principal is a program, not a person.")] = False,
    installation: Annotated[
        bool, typer.Option("--installation", help="Its roles apply to the whole installation, not only its tenant.")
    ] = False,
    name: Annotated[str | None, typer.Option("--name", help="Key name (default: the principal's name).")] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="Add the principal to this group; repeatable.")
    ] = None,
    expires: Annotated[str | None, typer.Option("--expires", help="Lifetime: 12h, 90d (default: no expiry).")] = None,
    tenant: OfTenant = "default",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create a key and print it once."""
    from codesdk.cli.admin import keys

    keys.create(
        principal,
        tenant=tenant,
        name=name,
        roles=tuple(role or ()),
        program=program,
        installation=installation,
        groups=tuple(group or ()),
        expires=expires,
        data_dir=data_dir,
        as_json=json,
    )


@keys_app.command("list")
def list_keys(*, tenant: OfTenant = "default", data_dir: DataDir = None, json: Json = False) -> None:
    """List a tenant's keys: prefix, owner, last use."""
    from codesdk.cli.admin import keys

    keys.show(tenant=tenant, data_dir=data_dir, as_json=json)


@keys_app.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(help="Key id (key_…), not the key itself.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Revoke a key immediately."""
    from codesdk.cli.admin import keys

    keys.revoke(key, data_dir=data_dir, as_json=json)


@tenants_app.command("create")
def create_tenant(name: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Create a tenant."""
    from codesdk.cli.admin import tenants

    tenants.create(name, data_dir=data_dir, as_json=json)


@tenants_app.command("list")
def list_tenants(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List tenants, oldest first."""
    from codesdk.cli.admin import tenants

    tenants.show_all(data_dir=data_dir, as_json=json)


@tenants_app.command("show")
def show_tenant(tenant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Show a tenant with its principals and usage."""
    from codesdk.cli.admin import tenants

    tenants.show(tenant, data_dir=data_dir, as_json=json)


@tenants_app.command("suspend")
def suspend_tenant(tenant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Suspend a tenant: its keys and tokens stop working and no call starts. Running calls finish."""
    from codesdk.cli.admin import tenants

    tenants.suspend(tenant, data_dir=data_dir, as_json=json)


@tenants_app.command("resume")
def resume_tenant(tenant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Resume a suspended tenant."""
    from codesdk.cli.admin import tenants

    tenants.resume(tenant, data_dir=data_dir, as_json=json)


@tenants_app.command("weight")
def tenant_weight(
    tenant: str,
    weight: Annotated[int, typer.Argument(min=1, max=100)],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Set a tenant's share: calls that a host starts for it per call of a tenant of weight 1, while both wait."""
    from codesdk.cli.admin import tenants

    tenants.set_weight(tenant, weight, data_dir=data_dir, as_json=json)


@tenants_app.command("allow-yolo")
def allow_yolo(
    tenant: str,
    *,
    off: Annotated[
        bool, typer.Option("--off", help="Forbid it again; open yolo sessions then behave as in `auto`.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Allow a tenant's sessions to use `yolo`, which skips approval for rules without `floor`."""
    from codesdk.cli.admin import tenants

    tenants.allow_yolo(tenant, allowed=not off, data_dir=data_dir, as_json=json)


@tenants_app.command("quota")
def tenant_quota(
    tenant: str,
    limits: Annotated[
        list[str] | None,
        typer.Argument(help="RESOURCE=AMOUNT: sessions=10, artifact_bytes=5GiB, sessions=none, sessions=default."),
    ] = None,
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Show a tenant's quotas and usage; with limits, set them first."""
    from codesdk.cli.admin import tenants

    tenants.quota(tenant, limits or [], data_dir=data_dir, as_json=json)


@groups_app.command("list")
def list_groups(*, tenant: OfTenant = "default", data_dir: DataDir = None, json: Json = False) -> None:
    """List a tenant's groups with their members."""
    from codesdk.cli.admin import groups

    groups.show(tenant=tenant, data_dir=data_dir, as_json=json)


@groups_app.command("add")
def add_to_group(
    group: str,
    principals: Annotated[list[str], typer.Argument(help="Names or ids.")],
    *,
    tenant: OfTenant = "default",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Add principals to a group; creates it if needed."""
    from codesdk.cli.admin import groups

    groups.change(group, principals, leave=False, tenant=tenant, data_dir=data_dir, as_json=json)


@groups_app.command("remove")
def remove_from_group(
    group: str,
    principals: Annotated[list[str], typer.Argument(help="Names or ids.")],
    *,
    tenant: OfTenant = "default",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Remove principals from a group; their earlier votes no longer count for it."""
    from codesdk.cli.admin import groups

    groups.change(group, principals, leave=True, tenant=tenant, data_dir=data_dir, as_json=json)
