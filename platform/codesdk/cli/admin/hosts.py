"""`codesdk hosts`: list, show, drain, activate, declare lost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from codesdk.cli.admin import HostChange, open_admin_client
from codesdk.cli.console.terminal import Printer, ResponsiveTable, format_time, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.hosts import HostRecord
from codesdk.sources.servers.server_status import ServerRecord

_GIB = 1024**3


def show_all(*, data_dir: Path | None, as_json: bool) -> None:
    """List hosts."""
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.hosts()
    Printer(as_json=as_json).listing("hosts", found, _host_table, "There is no host: no worker has ever run.")


def show_servers(*, data_dir: Path | None, as_json: bool) -> None:
    """List running MCP servers."""
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.servers()
    empty = "No MCP server runs: they start with the first call of one of their tools."
    Printer(as_json=as_json).listing("servers", found, _server_table, empty)


def show(host: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Show a host.

    Raises:
        HostUnknown: there is none of that name or id.
    """
    printer = Printer(as_json=as_json)
    with open_admin_client(load_settings(data_dir)) as admin:
        found = admin.host(host)
    if as_json:
        printer.emit(found)
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
    with open_admin_client(load_settings(data_dir)) as admin:
        done = admin.change_host(host, what)
    text = f"{sanitize(done.name)} is {_state(done)}; sessions there: {done.sessions}."
    Printer(as_json=as_json).answer(done, text)


def _host_table(found: Sequence[HostRecord]) -> ResponsiveTable:
    columns = ("host", "state", "heartbeat", "sessions", "memory GiB", "cpu", "calls", "labels")
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


def _server_table(found: Sequence[ServerRecord]) -> ResponsiveTable:
    columns = ("server", "host", "session", "state", "since", "restarts", "ended because it")
    shown = ResponsiveTable(*columns, folds=("ended because it",))
    for server in found:
        shown.add_row(
            Text(sanitize(server.source)),
            Text(sanitize(server.host)),
            Text(sanitize(server.session_id or "all (shared)")),
            server.state.value,
            format_time(server.since),
            str(server.restarts),
            Text(sanitize(server.reason)),
        )
    return shown


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
    used = f"{taken / unit:g}" if unit == 1 else f"{taken / unit:.1f}"
    return f"{used} of {most / unit:g}" if most else used
