"""`codesdk groups`: list and change the groups of principals that policy may ask."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.admin import AdminClient, open_admin_client, tenant_of
from codesdk.cli.console.arguments import validate_group_name
from codesdk.cli.console.terminal import Printer, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.domain.ids import TenantId
from codesdk.tenancy.principal import PrincipalRecord, PrincipalUnknown


def show(*, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List a tenant's groups with their members."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        owner = tenant_of(admin, tenant)
        groups = admin.groups(owner.id)
        people = {each.id: each for each in admin.principals(owner.id)}
    if as_json:
        printer.emit({"groups": groups})
    elif not groups:
        printer.out.print("There is no group. Create one with `codesdk groups add GROUP PRINCIPAL`.")
    for group in () if as_json else groups:
        names = [_label(people[member]) for member in group.members if member in people]
        printer.out.print(f"{group.name}: {', '.join(names)}", markup=False)


def change(
    group: str, principals: list[str], *, leave: bool, tenant: str, data_dir: Path | None, as_json: bool
) -> None:
    """Add principals, by name or id, to a group, or remove them from it.

    Raises:
        InputWrong: the group name is invalid. PrincipalUnknown: nothing was changed.
    """
    printer = Printer(as_json=as_json)
    name = validate_group_name(group)
    with open_admin_client(load_settings(data_dir)) as admin:
        owner = tenant_of(admin, tenant)
        chosen = [_find_principals(admin, owner.id, wanted) for wanted in principals]
        for each in chosen:
            admin.update_groups(each.id, **{"leave" if leave else "join": (name,)})
        after = next((each.members for each in admin.groups(owner.id) if each.name == name), ())
    done = f"{', '.join(sanitize(each.name) for each in chosen)} {'left' if leave else 'joined'} {name}"
    printer.answer({"name": name, "members": list(after)}, f"{done}: {len(after)} in it.")


def _find_principals(admin: AdminClient, tenant: TenantId, wanted: str) -> PrincipalRecord:
    there = [each for each in admin.principals(tenant) if wanted in (each.id, each.name)]
    found = next((each for each in there if each.disabled_at is None), there[0] if there else None)
    if found is None:
        raise PrincipalUnknown(f"The tenant has no principal {wanted}.", advice="Create it with `codesdk keys create`.")
    return found


def _label(principal: PrincipalRecord) -> str:
    return f"{sanitize(principal.name)} (disabled)" if principal.disabled_at is not None else sanitize(principal.name)
