"""`codesdk keys`: make, list, revoke."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from codesdk.cli.given import InputWrong, group_of, name_of, seconds
from codesdk.cli.init import show_key
from codesdk.cli.listing import Listing
from codesdk.cli.office import Office, open_office, tenant_of
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.voice import Voice
from codesdk.domain.ids import PrincipalId, TenantId
from codesdk.tenancy.keys import ApiKey
from codesdk.tenancy.principal import PrincipalKind, PrincipalRecord, PrincipalUnknown, Reach, Role


def create(
    principal: str,
    *,
    tenant: str,
    name: str | None,
    roles: tuple[Role, ...],
    program: bool,
    installation: bool = False,
    groups: tuple[str, ...] = (),
    expires: str | None,
    data_dir: Path | None,
    as_json: bool,
) -> None:
    """A key for a principal of that name or id, who is made where roles are given and there is none.

    `installation`: its roles go for the whole installation and not for its tenant alone.

    Raises:
        PrincipalUnknown: there is none, and no role was given to make one with.
        InputWrong: a name or the duration cannot be, or the principal is of its tenant alone, and more was wanted.
    """
    voice = Voice(as_json=as_json)
    label = None if name is None else name_of(name)
    ttl_s = None if expires is None else seconds(expires)
    joins = tuple(group_of(group) for group in groups)
    kind = PrincipalKind.PROGRAM if program else PrincipalKind.PERSON
    reach = Reach.INSTANCE if installation else Reach.TENANT
    with open_office(settings_of(data_dir)) as office:
        owner = tenant_of(office, tenant)
        holder = _holder(office, owner.id, principal, roles, kind=kind, reach=reach)
        if joins:
            office.regroup(holder.id, join=joins)
        made = office.create_key(holder.id, label or holder.name, ttl_s)
    if as_json:
        voice.give(made.model_dump(mode="json"))
    else:
        held = ", ".join(holder.roles)
        show_key(voice, made, f"The API key of {plain(holder.name)} ({held}) in {plain(owner.name)}")


def show(*, tenant: str, data_dir: Path | None, as_json: bool) -> None:
    """List a tenant's keys."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        owner = tenant_of(office, tenant)
        keys = office.keys(owner.id)
        names = {each.id: each for each in office.principals(owner.id)}
    if as_json:
        voice.give({"keys": [key.model_dump(mode="json") for key in keys]})
    elif not keys:
        voice.out.print("There is no key.")
    else:
        voice.rows(_table(keys, names))


def revoke(key: str, *, data_dir: Path | None, as_json: bool) -> None:
    """End one."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        revoked = office.revoke_key(key)
    if as_json:
        voice.give(revoked.model_dump(mode="json"))
    else:
        voice.out.print(f"Revoked {revoked.id} ({plain(revoked.name)}).")


def _holder(
    office: Office, tenant: TenantId, wanted: str, roles: tuple[Role, ...], *, kind: PrincipalKind, reach: Reach
) -> PrincipalRecord:
    there = [each for each in office.principals(tenant) if each.disabled_at is None]
    found = next((each for each in there if wanted in (each.id, each.name)), None)
    if found is not None:
        if reach is Reach.INSTANCE and found.reach is not reach:
            raise InputWrong(f"{wanted} is there already, and of its tenant alone. Give another name.")
        return found
    if not roles:
        raise PrincipalUnknown(
            f"The tenant has no principal {wanted}.", advice="Give --role (once or more) to make one, or name another."
        )
    return office.create_principal(tenant, name_of(wanted), roles, kind, reach)


def _table(keys: list[ApiKey], holders: dict[PrincipalId, PrincipalRecord]) -> Listing:
    columns = ("key", "begins with", "principal", "for", "last used", "state")
    shown = Listing(*columns, folds=("principal", "for", "state"))
    for key in keys:
        holder = holders.get(key.principal_id)
        names = (plain(holder.name) if holder else "", plain(key.name))
        shown.add_row(key.id, Text(key.prefix), *map(Text, names), _day(key.last_used_at), _state(key))
    return shown


def _state(key: ApiKey) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    return "good" if key.expires_at is None else f"until {_day(key.expires_at)}"


def _day(moment: float | None) -> str:
    return "" if moment is None else datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")
