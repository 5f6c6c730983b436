"""`codesdk tenants`: make, look, suspend, limit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from codesdk.cli.given import limit, name_of
from codesdk.cli.listing import Listing
from codesdk.cli.office import open_office, tenant_of
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.voice import Voice
from codesdk.tenancy.principal import PrincipalRecord
from codesdk.tenancy.quotas import Quota
from codesdk.tenancy.tenant import Tenant


def create(name: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Make one.

    Raises:
        InputWrong: the name is none.
    """
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        made = office.create_tenant(name_of(name))
    if as_json:
        voice.give(made.model_dump(mode="json"))
    else:
        voice.say(f"Nobody is in it yet: `codesdk keys create NAME --role operator --tenant {made.id}`.")
        voice.out.print(made.id)


def show_all(*, data_dir: Path | None, as_json: bool) -> None:
    """List them."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        found = office.tenants()
    if as_json:
        voice.give({"tenants": [each.model_dump(mode="json") for each in found]})
        return
    shown = _columns("tenant", "name", "made (UTC)", "weight", "state")
    for each in found:
        shown.add_row(each.id, Text(plain(each.name)), _day(each.created_at), str(each.weight), _state(each))
    voice.rows(shown)


def show(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """One of them, with its people and what it uses."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        found = tenant_of(office, tenant)
        principals = office.principals(found.id)
        quotas = office.quotas(found.id)
    if as_json:
        voice.give(
            {
                **found.model_dump(mode="json"),
                "principals": [each.model_dump(mode="json") for each in principals],
                "quotas": [each.model_dump(mode="json") for each in quotas],
            }
        )
        return
    voice.out.print(Text(f"{found.id}  {plain(found.name)}  {_state(found)}"))
    voice.rows(_principals(principals))
    voice.rows(_quotas(quotas))


def weigh(tenant: str, weight: int, *, data_dir: Path | None, as_json: bool) -> None:
    """Give it another share."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        done = office.weigh(tenant_of(office, tenant).id, weight)
    _say(voice, done, f"From now on weight {done.weight}:")


def allow_yolo(tenant: str, *, allowed: bool, data_dir: Path | None, as_json: bool) -> None:
    """Let its sessions have the mode `yolo`, or not."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        done = office.allow_yolo(tenant_of(office, tenant).id, allowed=allowed)
    _say(voice, done, "From now on yolo is allowed to" if done.yolo else "From now on yolo is not allowed to")


def suspend(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Stop its keys and tokens."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        done = office.suspend(tenant_of(office, tenant).id)
    _say(voice, done, "Suspended")


def resume(tenant: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Undo that."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        done = office.resume(tenant_of(office, tenant).id)
    _say(voice, done, "Resumed")


def quota(tenant: str, changes: list[str], *, data_dir: Path | None, as_json: bool) -> None:
    """Show its limits, after setting those that are given.

    Raises:
        InputWrong: a limit cannot be read; none was set.
    """
    voice = Voice(as_json=as_json)
    wanted = dict(limit(change) for change in changes)
    with open_office(settings_of(data_dir)) as office:
        found = tenant_of(office, tenant)
        quotas = office.set_limits(found.id, wanted) if wanted else office.quotas(found.id)
    if as_json:
        voice.give({"tenant_id": found.id, "quotas": [each.model_dump(mode="json") for each in quotas]})
    else:
        voice.rows(_quotas(quotas))


def _say(voice: Voice, tenant: Tenant, word: str) -> None:
    if voice.as_json:
        voice.give(tenant.model_dump(mode="json"))
    else:
        voice.out.print(Text(f"{word} {tenant.id} ({plain(tenant.name)})."))


def _principals(found: list[PrincipalRecord]) -> Listing:
    shown = _columns("principal", "name", "kind", "roles", "state")
    for each in found:
        state = "disabled" if each.disabled_at is not None else ""
        roles = ", ".join(each.roles) + (" (installation)" if each.reach == "instance" else "")
        shown.add_row(each.id, Text(plain(each.name)), each.kind.value, roles, state)
    return shown


def _quotas(found: list[Quota]) -> Listing:
    shown = _columns("resource", "used", "limit", "from")
    for each in found:
        most = str(each.limit) if each.limit else "none"
        shown.add_row(each.resource.value, str(each.used), most, "tenant" if each.own else "default")
    return shown


def _columns(*names: str) -> Listing:
    return Listing(*names, folds=("state", "name"))


def _state(tenant: Tenant) -> str:
    state = "active" if tenant.suspended_at is None else f"suspended since {_day(tenant.suspended_at)}"
    return f"{state}, yolo allowed" if tenant.yolo else state


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M")
