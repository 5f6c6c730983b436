"""Prints how to connect to a session, and where the running worker runs its tools."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.text import Text

from codesdk.cli.api_client import OpenedSession
from codesdk.cli.console.terminal import Printer
from codesdk.cli.session.agent_commands import call_limit_s, connect_commands
from codesdk.sandbox.port import DOCKER
from codesdk.settings import Settings, runfile


def opened_as_json(opened: OpenedSession, **more: Any) -> dict[str, Any]:
    """Return the connection as JSON."""
    return {"session_id": opened.session.id, "mcp_url": opened.mcp_url, "token": opened.token, **more}


def print_connection_info(console: Console, opened: OpenedSession, settings: Settings) -> None:
    """Print the connection for people. Lines aren't wrapped, so that they can be pasted."""
    limit_s = call_limit_s(settings.wait_s)
    facts = {"MCP URL": opened.mcp_url, "token": opened.token, "session": opened.session.id}
    where = execution_env(settings)
    if where not in (None, DOCKER):
        facts["runs in"] = f"{where} (processes of this machine, not containers)"
    console.print()
    for name, value in facts.items():
        console.print(Text.assemble((f"  {name:<9}", "dim"), (value, "bold")), soft_wrap=True)
    console.print("\n  [dim]Connect an agent: paste one of these lines in a shell.[/dim]")
    for agent, line in connect_commands(opened.mcp_url, opened.token, limit_s).items():
        console.print(Text(f"\n  {agent}", style="bold cyan"))
        console.print(Text(line), soft_wrap=True)
    console.print("\n  [dim]Gemini CLI keeps its own tools next to these; no policy applies to them.[/dim]\n")


def execution_env(settings: Settings) -> str | None:
    """Return the execution environment as in events; None if no worker runs."""
    worker = runfile.read(settings.data_dir, "worker")
    found = worker.get("execution_env") if worker else None
    return str(found) if found else None


def warn_if_not_container(printer: Printer, settings: Settings) -> None:
    """Warn if the worker runs tools as processes of this machine."""
    found = execution_env(settings)
    if found not in (None, DOCKER):
        printer.warn(f"{found}: sandboxes here are processes of this machine, not containers.")
