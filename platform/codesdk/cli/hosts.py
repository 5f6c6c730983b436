"""`codesdk hosts`: look, drain, put back, give up."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from codesdk.cli.listing import Listing
from codesdk.cli.office import HostChange, open_office
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.voice import Voice
from codesdk.hosts import HostRecord
from codesdk.sources.server_status import ServerRecord

GIB = 1024**3


def show_all(*, data_dir: Path | None, as_json: bool) -> None:
    """List them."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        found = office.hosts()
    if as_json:
        voice.give({"hosts": [each.model_dump(mode="json") for each in found]})
    elif not found:
        voice.out.print("There is no host: no worker has ever run.")
    else:
        voice.rows(_table(found))


def show_servers(*, data_dir: Path | None, as_json: bool) -> None:
    """The MCP servers that workers have."""
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        found = office.servers()
    if as_json:
        voice.give({"servers": [each.model_dump(mode="json") for each in found]})
    elif not found:
        voice.out.print("No MCP server runs: they start with the first call of one of their tools.")
    else:
        voice.rows(_servers(found))


def show(host: str, *, data_dir: Path | None, as_json: bool) -> None:
    """One of them.

    Raises:
        HostUnknown: none of that name or id.
    """
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        found = office.host(host)
    if as_json:
        voice.give(found.model_dump(mode="json"))
        return
    voice.rows(_table([found]))
    for name, value in (
        ("id", found.id),
        ("engine", found.engine or "not known"),
        ("generation", str(found.generation)),
        *((f"label {name}", value) for name, value in sorted(found.labels.items())),
        *((f"image {name}", value) for name, value in sorted(found.images.items())),
    ):
        voice.out.print(Text(f"{plain(name)}: {plain(value)}"), soft_wrap=True)


def change(host: str, what: HostChange, *, data_dir: Path | None, as_json: bool) -> None:
    """Do it, and say how the host stands then.

    Raises:
        HostUnknown: none of that name or id. HostConflict: it is lost.
    """
    voice = Voice(as_json=as_json)
    with open_office(settings_of(data_dir)) as office:
        done = office.change_host(host, what)
    if as_json:
        voice.give(done.model_dump(mode="json"))
    else:
        voice.out.print(Text(f"{plain(done.name)} is {_state(done)}; sessions there: {done.sessions}."))


def _table(found: list[HostRecord]) -> Listing:
    columns = ("host", "state", "heard", "sessions", "memory GiB", "cpu", "calls", "labels")
    shown = Listing(*columns, folds=("calls", "labels"))
    for host in found:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(host.labels.items()))
        shown.add_row(
            Text(plain(host.name)),
            _state(host),
            ago(host.silent_s),
            _of(host.sessions, host.capacity.sessions, 1),
            _of(host.reserved.memory_bytes, host.capacity.memory_bytes, GIB),
            _of(host.reserved.millicpus, host.capacity.millicpus, 1000),
            f"{host.running_calls} run, {host.queued_calls} wait",
            Text(plain(labels)),
        )
    return shown


def _servers(found: list[ServerRecord]) -> Listing:
    columns = ("server", "host", "session", "state", "since", "restarts", "ended because it")
    shown = Listing(*columns, folds=("ended because it",))
    for server in found:
        shown.add_row(
            Text(plain(server.source)),
            Text(plain(server.host)),
            Text(plain(server.session_id or "all (shared)")),
            server.state.value,
            _moment(server.since),
            str(server.restarts),
            Text(plain(server.reason)),
        )
    return shown


def _moment(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float | None) -> str:
    """How long that is, roughly."""
    if seconds is None:
        return "never"
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name} ago"
    return f"{seconds:.0f} s ago"


def _state(host: HostRecord) -> str:
    return f"{host.state.value}, away" if host.away else host.state.value


def _of(taken: int, most: int, unit: int) -> str:
    """What is taken of what there is, where its operator said how much that is."""
    said = f"{taken / unit:g}" if unit == 1 else f"{taken / unit:.1f}"
    return f"{said} of {most / unit:g}" if most else said
