"""`codesdk hosts …`: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json

hosts_app = typer.Typer(
    help="Manage hosts (an engine and its worker) of the running daemon, or of the data directory.",
    no_args_is_help=True,
)

HostRef = Annotated[str, typer.Argument(metavar="HOST", help="Host name or id.")]


@hosts_app.command("list")
def list_hosts(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List hosts with their capacity and reservations."""
    from codesdk.cli.admin import hosts

    hosts.show_all(data_dir=data_dir, as_json=json)


@hosts_app.command("show")
def show_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Show a host with its labels and images."""
    from codesdk.cli.admin import hosts

    hosts.show(host, data_dir=data_dir, as_json=json)


@hosts_app.command("servers")
def list_servers(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List running MCP servers: session, start time, restarts."""
    from codesdk.cli.admin import hosts

    hosts.show_servers(data_dir=data_dir, as_json=json)


@hosts_app.command("drain")
def drain_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Place no new sessions on a host. Existing ones continue; close them, or wait, before you remove the host."""
    from codesdk.cli.admin import hosts

    hosts.change(host, "drain", data_dir=data_dir, as_json=json)


@hosts_app.command("activate")
def activate_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Place sessions on a drained host again."""
    from codesdk.cli.admin import hosts

    hosts.change(host, "activate", data_dir=data_dir, as_json=json)


@hosts_app.command("lose")
def lose_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Give up a host that won't come back: its sessions end now, running calls with WORKER_LOST."""
    from codesdk.cli.admin import hosts

    hosts.change(host, "lose", data_dir=data_dir, as_json=json)
