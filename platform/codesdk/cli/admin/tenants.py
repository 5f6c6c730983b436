"""`codesdk tenants`: create, list, show, suspend, limit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from codesdk.cli.admin import open_admin_client, tenant_of
from codesdk.cli.console.arguments import parse_quota, validate_name
from codesdk.cli.console.printer import Printer
from codesdk.cli.console.table import ResponsiveTable
from codesdk.cli.console.text import sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.tenancy.principal import PrincipalRecord
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant


def create(name: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Create a tenant.

    Raises:
        InputWrong: the name is invalid.
    """
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        made = admin.create_tenant(validate_name(name))
    if as_json:
        printer.emit(made.model_dump(mode="json"))
    else:
        printer.progress(f"Nobody is in it yet: `codesdk keys create NAME --role operator --tenant {made.id}`.")
        printer.out.print(made.id)


def show_all(*, data_dir: Path | None, as_json: bool) -> None:
    """List tenants."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.tenants()
    if as_json:
        printer.emit({"tenants": [each.model_dump(mode="json") for each in found]})
        return
    shown = _columns("tenant", "name", "made (UTC)", "weight", "state")
    for each in found:
        shown.add_row(each.id, Text(sanitize(each.name)), _format_date(each.created_at), str(each.weight), _state(each))
    printer.rows(shown)


def show(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Show a tenant with its principals and usage."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = tenant_of(admin, tenant)
        principals = admin.principals(found.id)
        quotas = admin.quotas(found.id)
    if as_json:
        printer.emit(
            {
                **found.model_dump(mode="json"),
                "principals": [each.model_dump(mode="json") for each in principals],
                "quotas": [each.model_dump(mode="json") for each in quotas],
            }
        )
        return
    printer.out.print(Text(f"{found.id}  {sanitize(found.name)}  {_state(found)}"))
    printer.rows(_principals(principals))
    printer.rows(_quotas(quotas))


def set_weight(tenant: str, weight: int, *, data_dir: Path | None, as_json: bool) -> None:
    """Set a tenant's share of each host."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.set_weight(tenant_of(admin, tenant).id, weight)
    _print_tenant(printer, done, f"From now on weight {done.weight}:")


def allow_yolo(tenant: str, *, allowed: bool, data_dir: Path | None, as_json: bool) -> None:
    """Allow or forbid the permission mode `yolo` for a tenant's sessions."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.allow_yolo(tenant_of(admin, tenant).id, allowed=allowed)
    _print_tenant(
        printer, done, "From now on yolo is allowed to" if done.yolo else "From now on yolo is not allowed to"
    )


def suspend(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Suspend a tenant: its keys and tokens stop working."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.suspend(tenant_of(admin, tenant).id)
    _print_tenant(printer, done, "Suspended")


def resume(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Resume a suspended tenant."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.resume(tenant_of(admin, tenant).id)
    _print_tenant(printer, done, "Resumed")


def quota(tenant: str, changes: list[str], *, data_dir: Path | None, as_json: bool) -> None:
    """Set the given limits, then show all.

    Raises:
        InputWrong: a limit is invalid; none was set.
    """
    printer = Printer(as_json=as_json)
    wanted = dict(parse_quota(change) for change in changes)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = tenant_of(admin, tenant)
        quotas = admin.set_limits(found.id, wanted) if wanted else admin.quotas(found.id)
    if as_json:
        printer.emit({"tenant_id": found.id, "quotas": [each.model_dump(mode="json") for each in quotas]})
    else:
        printer.rows(_quotas(quotas))


def _print_tenant(printer: Printer, tenant: Tenant, word: str) -> None:
    if printer.as_json:
        printer.emit(tenant.model_dump(mode="json"))
    else:
        printer.out.print(Text(f"{word} {tenant.id} ({sanitize(tenant.name)})."))


def _principals(found: list[PrincipalRecord]) -> ResponsiveTable:
    shown = _columns("principal", "name", "kind", "roles", "state")
    for each in found:
        state = "disabled" if each.disabled_at is not None else ""
        roles = ", ".join(each.roles) + (" (installation)" if each.reach == "instance" else "")
        shown.add_row(each.id, Text(sanitize(each.name)), each.kind.value, roles, state)
    return shown


def _quotas(found: list[Quota]) -> ResponsiveTable:
    shown = _columns("resource", "used", "limit", "from")
    for each in found:
        most = str(each.limit) if each.limit else "none"
        shown.add_row(each.resource.value, str(each.used), most, "tenant" if each.own else "default")
    return shown


def _columns(*names: str) -> ResponsiveTable:
    return ResponsiveTable(*names, folds=("state", "name"))


def _state(tenant: Tenant) -> str:
    state = "active" if tenant.suspended_at is None else f"suspended since {_format_date(tenant.suspended_at)}"
    return f"{state}, yolo allowed" if tenant.yolo else state


def _format_date(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
