"""The commands of tenancy: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json
from codesdk.tenancy.principal import Role

keys_app = typer.Typer(
    help="API keys: of the running daemon, or of the data directory where none runs.", no_args_is_help=True
)
tenants_app = typer.Typer(help="Tenants: of the running daemon, or of the data directory.", no_args_is_help=True)

groups_app = typer.Typer(
    help="Groups of principals that policy may ask: of the running daemon, or of the data directory.",
    no_args_is_help=True,
)

OfTenant = Annotated[str, typer.Option("--tenant", help="Name or id of the tenant.")]


@keys_app.command("create")
def create_key(
    principal: Annotated[str, typer.Argument(help="Name or id; made where roles are given and there is none.")],
    *,
    role: Annotated[list[Role] | None, typer.Option("--role", help="Of a new principal; may be repeated.")] = None,
    program: Annotated[bool, typer.Option("--program", help="A new principal is a program, not a person.")] = False,
    installation: Annotated[
        bool, typer.Option("--installation", help="Its roles go for the whole installation, not for its tenant alone.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", help="What the key is for (default: the principal's name).")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", help="The principal joins this group; may be repeated.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="How long it lives: 12h, 90d (default: for ever).")
    ] = None,
    tenant: OfTenant = "default",
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Make a key and print it, this once."""
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
    """A tenant's keys: how each begins, whose it is, when it was last used."""
    from codesdk.cli.admin import keys

    keys.show(tenant=tenant, data_dir=data_dir, as_json=json)


@keys_app.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(help="Its id (key_…), not the key.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """End a key, at once."""
    from codesdk.cli.admin import keys

    keys.revoke(key, data_dir=data_dir, as_json=json)


@tenants_app.command("create")
def create_tenant(name: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Make a tenant."""
    from codesdk.cli.admin import tenants

    tenants.create(name, data_dir=data_dir, as_json=json)


@tenants_app.command("list")
def list_tenants(*, data_dir: DataDir = None, json: Json = False) -> None:
    """All of them, oldest first."""
    from codesdk.cli.admin import tenants

    tenants.show_all(data_dir=data_dir, as_json=json)


@tenants_app.command("show")
def show_tenant(tenant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """One, with its principals and what it uses."""
    from codesdk.cli.admin import tenants

    tenants.show(tenant, data_dir=data_dir, as_json=json)


@tenants_app.command("suspend")
def suspend_tenant(tenant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Its keys and tokens open nothing from now on, and none of its calls starts. What runs ends by itself."""
    from codesdk.cli.admin import tenants

    tenants.suspend(tenant, data_dir=data_dir, as_json=json)


@tenants_app.command("resume")
def resume_tenant(tenant: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Undo a suspension."""
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
    """Calls that a host starts for it where it starts one for a tenant of weight 1, while calls of both wait."""
    from codesdk.cli.admin import tenants

    tenants.set_weight(tenant, weight, data_dir=data_dir, as_json=json)


@tenants_app.command("allow-yolo")
def allow_yolo(
    tenant: str,
    *,
    off: Annotated[bool, typer.Option("--off", help="Not any more; open sessions in it behave as in `auto`.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Let its sessions have the mode `yolo`, which allows every ask of a rule without `floor`."""
    from codesdk.cli.admin import tenants

    tenants.allow_yolo(tenant, allowed=not off, data_dir=data_dir, as_json=json)


@tenants_app.command("quota")
def tenant_quota(
    tenant: str,
    limits: Annotated[
        list[str] | None,
        typer.Argument(help="RESOURCE=AMOUNT: sessions=10, artifact_bytes=5GiB, sessions=none, =default."),
    ] = None,
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """What a tenant may have and has; with limits, sets them first."""
    from codesdk.cli.admin import tenants

    tenants.quota(tenant, limits or [], data_dir=data_dir, as_json=json)


@groups_app.command("list")
def list_groups(*, tenant: OfTenant = "default", data_dir: DataDir = None, json: Json = False) -> None:
    """A tenant's groups with their members."""
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
    """Let principals join a group, which is made with the first."""
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
    """Let principals leave a group; what they voted before does not count any more."""
    from codesdk.cli.admin import groups

    groups.change(group, principals, leave=True, tenant=tenant, data_dir=data_dir, as_json=json)
