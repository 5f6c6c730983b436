"""`codesdk hosts`: list, show, drain, activate, declare lost."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from codesdk.cli.admin import HostChange, open_admin_client
from codesdk.cli.console.printer import Printer
from codesdk.cli.console.table import ResponsiveTable
from codesdk.cli.console.text import sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.hosts import HostRecord
from codesdk.sources.servers.server_status import ServerRecord

_GIB = 1024**3


def show_all(*, data_dir: Path | None, as_json: bool) -> None:
    """List hosts."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.hosts()
    if as_json:
        printer.emit({"hosts": [each.model_dump(mode="json") for each in found]})
    elif not found:
        printer.out.print("There is no host: no worker has ever run.")
    else:
        printer.rows(_host_table(found))


def show_servers(*, data_dir: Path | None, as_json: bool) -> None:
    """List running MCP servers."""
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.servers()
    if as_json:
        printer.emit({"servers": [each.model_dump(mode="json") for each in found]})
    elif not found:
        printer.out.print("No MCP server runs: they start with the first call of one of their tools.")
    else:
        printer.rows(_server_table(found))


def show(host: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Show a host.

    Raises:
        HostUnknown: there is none of that name or id.
    """
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.host(host)
    if as_json:
        printer.emit(found.model_dump(mode="json"))
        return
    printer.rows(_host_table([found]))
    for name, value in (
        ("id", found.id),
        ("engine", found.engine or "not known"),
        ("generation", str(found.generation)),
        *((f"label {name}", value) for name, value in sorted(found.labels.items())),
        *((f"image {name}", value) for name, value in sorted(found.images.items())),
    ):
        printer.out.print(Text(f"{sanitize(name)}: {sanitize(value)}"), soft_wrap=True)


def change(host: str, what: HostChange, *, data_dir: Path | None, as_json: bool) -> None:
    """Change a host's state and print the result.

    Raises:
        HostUnknown: there is none of that name or id. HostConflict: the host is lost.
    """
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.change_host(host, what)
    if as_json:
        printer.emit(done.model_dump(mode="json"))
    else:
        printer.out.print(Text(f"{sanitize(done.name)} is {_state(done)}; sessions there: {done.sessions}."))


def _host_table(found: list[HostRecord]) -> ResponsiveTable:
    columns = ("host", "state", "heard", "sessions", "memory GiB", "cpu", "calls", "labels")
    shown = ResponsiveTable(*columns, folds=("calls", "labels"))
    for host in found:
        labels = ", ".join(f"{name}={value}" for name, value in sorted(host.labels.items()))
        shown.add_row(
            Text(sanitize(host.name)),
            _state(host),
            ago(host.silent_s),
            _usage(host.sessions, host.capacity.sessions, 1),
            _usage(host.reserved.memory_bytes, host.capacity.memory_bytes, _GIB),
            _usage(host.reserved.millicpus, host.capacity.millicpus, 1000),
            f"{host.running_calls} run, {host.queued_calls} wait",
            Text(sanitize(labels)),
        )
    return shown


def _server_table(found: list[ServerRecord]) -> ResponsiveTable:
    columns = ("server", "host", "session", "state", "since", "restarts", "ended because it")
    shown = ResponsiveTable(*columns, folds=("ended because it",))
    for server in found:
        shown.add_row(
            Text(sanitize(server.source)),
            Text(sanitize(server.host)),
            Text(sanitize(server.session_id or "all (shared)")),
            server.state.value,
            _format_time(server.since),
            str(server.restarts),
            Text(sanitize(server.reason)),
        )
    return shown


def _format_time(at: float | None) -> str:
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def ago(seconds: float | None) -> str:
    """Format a duration roughly."""
    if seconds is None:
        return "never"
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name} ago"
    return f"{seconds:.0f} s ago"


def _state(host: HostRecord) -> str:
    return f"{host.state.value}, away" if host.away else host.state.value


def _usage(taken: int, most: int, unit: int) -> str:
    """Format usage and capacity; the capacity only if the operator set one."""
    said = f"{taken / unit:g}" if unit == 1 else f"{taken / unit:.1f}"
    return f"{said} of {most / unit:g}" if most else said
