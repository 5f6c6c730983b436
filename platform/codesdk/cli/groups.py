"""`codesdk groups`: who is in which group that policy may ask."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.given import group_of
from codesdk.cli.office import Office, open_office, tenant_of
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.voice import Voice
from codesdk.domain.ids import TenantId
from codesdk.tenancy.principal import PrincipalRecord, PrincipalUnknown


def show(*, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List a tenant's groups with their members."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        owner = tenant_of(office, tenant)
        groups = office.groups(owner.id)
        people = {each.id: each for each in office.principals(owner.id)}
    if as_json:
        voice.give({"groups": [group.model_dump(mode="json") for group in groups]})
    elif not groups:
        voice.out.print("There is no group. `codesdk groups add GROUP PRINCIPAL` makes one.")
    for group in () if as_json else groups:
        names = [_told(people[member]) for member in group.members if member in people]
        voice.out.print(f"{group.name}: {', '.join(names)}", markup=False)


def change(
    group: str, principals: list[str], *, leave: bool, tenant: str, data_dir: Path | None, as_json: bool
) -> None:
    """Let principals, by name or id, join or leave a group.

    Raises:
        InputWrong: the group cannot have that name. PrincipalUnknown: nothing was changed.
    """
    voice = Voice(as_json=as_json)
    name = group_of(group)
    with open_office(settings_of(data_dir)) as office:
        owner = tenant_of(office, tenant)
        chosen = [_found(office, owner.id, wanted) for wanted in principals]
        for each in chosen:
            office.regroup(each.id, **{"leave" if leave else "join": (name,)})
        after = next((each.members for each in office.groups(owner.id) if each.name == name), ())
    if as_json:
        voice.give({"name": name, "members": list(after)})
    else:
        done = "left" if leave else "joined"
        voice.out.print(
            f"{', '.join(plain(each.name) for each in chosen)} {done} {name}: {len(after)} in it.", markup=False
        )


def _found(office: Office, tenant: TenantId, wanted: str) -> PrincipalRecord:
    there = [each for each in office.principals(tenant) if wanted in (each.id, each.name)]
    found = next((each for each in there if each.disabled_at is None), there[0] if there else None)
    if found is None:
        raise PrincipalUnknown(f"The tenant has no principal {wanted}.", advice="`codesdk keys create` makes one.")
    return found


def _told(principal: PrincipalRecord) -> str:
    return f"{plain(principal.name)} (disabled)" if principal.disabled_at is not None else plain(principal.name)
