"""The commands of hosts: options and help."""
# ruff: noqa: PLC0415 - see cli.app

from __future__ import annotations

from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json

hosts_app = typer.Typer(
    help="Hosts (an engine and its worker): of the running daemon, or of the data directory.", no_args_is_help=True
)

HostRef = Annotated[str, typer.Argument(metavar="HOST", help="Its name or id.")]


@hosts_app.command("list")
def list_hosts(*, data_dir: DataDir = None, json: Json = False) -> None:
    """All of them, with what is reserved of what they have."""
    from codesdk.cli.admin import hosts

    hosts.show_all(data_dir=data_dir, as_json=json)


@hosts_app.command("show")
def show_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """One, with its labels and images."""
    from codesdk.cli.admin import hosts

    hosts.show(host, data_dir=data_dir, as_json=json)


@hosts_app.command("servers")
def list_servers(*, data_dir: DataDir = None, json: Json = False) -> None:
    """The MCP servers that run on them: for which session, since when, how often started again."""
    from codesdk.cli.admin import hosts

    hosts.show_servers(data_dir=data_dir, as_json=json)


@hosts_app.command("drain")
def drain_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Place no new session there. Those that it has go on; close them, or wait, before you take it away."""
    from codesdk.cli.admin import hosts

    hosts.change(host, "drain", data_dir=data_dir, as_json=json)


@hosts_app.command("activate")
def activate_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Place sessions there again."""
    from codesdk.cli.admin import hosts

    hosts.change(host, "activate", data_dir=data_dir, as_json=json)


@hosts_app.command("lose")
def lose_host(host: HostRef, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Give it up: its sessions end at once, their running calls as WORKER_LOST. For a machine that will not come back."""
    from codesdk.cli.admin import hosts

    hosts.change(host, "lose", data_dir=data_dir, as_json=json)
