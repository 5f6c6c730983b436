"""`codesdk audit`: the chains, listed, sealed and verified on the database itself."""

from __future__ import annotations

import json
import re
from pathlib import Path

from rich.text import Text

from codesdk.bootstrap.record import Record, open_record
from codesdk.cli.places import settings_of
from codesdk.cli.plain import counted, plain
from codesdk.cli.voice import Voice
from codesdk.errors import ExitCode, Fault
from codesdk.eventlog.audit import INSTALLATION, store
from codesdk.eventlog.audit.seals import Sealer
from codesdk.eventlog.audit.verification import verify as verify_chains
from codesdk.eventlog.log import PAGE
from codesdk.tenancy import store as tenancy_store
from codesdk.tenancy.tenant import TenantUnknown

_HEAD = re.compile(r"(?P<chain>[^:]+):(?P<end>[0-9]+:sha256:[0-9a-f]{64})")

_ELSEWHERE = " What concerns all tenants is in another: --tenant installation."


class HeadUnreadable(Fault):
    """What was given is no end of a chain."""

    code = "HEAD_UNREADABLE"
    exit_code = ExitCode.USAGE


def show(tenant: str, *, after: int, data_dir: Path | None, as_json: bool) -> None:
    """Print them.

    Raises:
        TenantUnknown: there is none of that name or id.
    """
    voice = Voice(as_json=as_json)
    with open_record(settings_of(data_dir)) as record:
        chain = _chain(record, tenant)
        while True:
            with record.database.read() as connection:
                page = store.after(connection, chain, after, PAGE)
            for entry in page:
                after = entry.number
                if as_json:
                    voice.give(entry.model_dump(mode="json"))
                    continue
                said = plain(json.dumps(entry.details, ensure_ascii=False))
                parts = f"{entry.number:>5} {entry.time[:19]}Z {entry.act:<20} {plain(entry.target)}"
                voice.out.print(Text(f"{parts}  by {plain(entry.actor)}  {said}"), soft_wrap=True)
            if len(page) < PAGE:
                break
    if not after and not as_json:
        voice.out.print(f"Nothing is in the chain of {tenant}.{'' if tenant == INSTALLATION else _ELSEWHERE}")


def seal(*, data_dir: Path | None, as_json: bool) -> None:
    """Seal what has grown."""
    voice = Voice(as_json=as_json)
    with open_record(settings_of(data_dir)) as record:
        done = Sealer(record.database, record.writer, record.clock).seal()
    if as_json:
        voice.give({"sessions": done})
    else:
        voice.out.print(f"Sealed the log{'' if done == 1 else 's'} of {counted(done, 'session')}.")


def verify(heads: tuple[str, ...], *, data_dir: Path | None, as_json: bool) -> int:
    """Verify; the exit code says whether all is what it was.

    Raises:
        HeadUnreadable: a `--head` has not the form in which this prints them.
    """
    voice = Voice(as_json=as_json)
    expected = dict(_parsed(head) for head in heads)
    with open_record(settings_of(data_dir)) as record:
        found = verify_chains(record.database, expected)
    if as_json:
        voice.give(found.model_dump(mode="json"))
    else:
        for each in found.findings:
            voice.out.print(Text(plain(f"{each.chain}: {each.where}: {each.what}."), style="red"), soft_wrap=True)
        counts = f"{counted(found.entries, 'entry', 'entries')} and {counted(found.sealed_events, 'sealed event')}"
        voice.out.print(f"Hashed again: {counts}; {'something' if found.findings else 'nothing'} was changed.")
        for chain, end in found.heads.items():
            voice.out.print(Text(f"{chain}:{end}", style="dim"), soft_wrap=True)
    return ExitCode.FAILED if found.findings else ExitCode.OK


def _parsed(head: str) -> tuple[str, str]:
    match = _HEAD.fullmatch(head)
    if match is None:
        raise HeadUnreadable(f"{head!r} is no end of a chain.", advice="Give what `codesdk audit verify` printed.")
    return match["chain"], match["end"]


def _chain(record: Record, tenant: str) -> str:
    if tenant == INSTALLATION:
        return tenant
    with record.database.read() as connection:
        named = tenancy_store.tenant_named(connection, tenant)
        if named is None and tenancy_store.tenant(connection, tenant) is None:
            raise TenantUnknown(f"There is no tenant {tenant}.", advice="See `codesdk tenants list`.")
    return named or tenant
