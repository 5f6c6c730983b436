"""`codesdk connect`: prints a client's configuration or writes it to the client's file, and checks the connection."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.text import Text

from codesdk.cli.api_client import connect
from codesdk.cli.client_config import client_check, config_file, endpoint_check
from codesdk.cli.client_config.clients import (
    CLIENTS,
    TOKEN_VARIABLE,
    ClientKind,
    ClientSpec,
    ConfigEntry,
    Endpoint,
    as_json,
    as_toml,
)
from codesdk.cli.client_config.merge import has_entry, merge_json, merge_toml
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.session.agent_commands import CALL_MARGIN_S, call_limit_s
from codesdk.cli.session.create import create_session
from codesdk.cli.session.stdio_bridge import TokenMissing
from codesdk.domain.decisions import PermissionMode
from codesdk.settings import Settings


def run(
    kind: ClientKind,
    *,
    url: str | None,
    token: str | None,
    wait_s: int | None,
    workspace: Path | None,
    write: bool,
    file: Path | None,
    check: bool,
    data_dir: Path | None,
    as_json_answer: bool,
) -> None:
    """Print, write or check the configuration of a client.

    Raises:
        TokenMissing: only one of URL and token was given.
        NotMergeable, CannotWrite: the client's file is unchanged.
        HostUnreachable, HostNotReady, TokenRefused, NoSession, ClientAbsent, ClientSilent, ToolsNotSeen: the check
        failed.
        Fault: no session could be opened.
    """
    printer = Printer(as_json=as_json_answer)
    client = CLIENTS[kind]
    place = file or client.file(Path.home(), Path.cwd())
    if write:  # fail on a file that can't be merged before opening a session
        _merge(client, config_file.read(place), client.piece(Endpoint("http://127.0.0.1", "", limit_s=1)))
    to = _endpoint(printer, url=url, token=token, wait_s=wait_s, workspace=workspace, data_dir=data_dir)
    piece = client.piece(to)
    notes = [note.format(limit_s=to.limit_s) for note in client.notes]
    text = as_toml(piece) if client.toml else as_json(piece)
    kept = _write_config(client, place, to) if write else None
    if not as_json_answer:
        _print_result(printer, client, place, text, to, written=write, kept=kept)
        for note in notes:
            printer.progress(note)
    served = endpoint_check.list_served_tools(to) if check else None
    seen = client_check.list_client_tools(kind, to) if check else None
    if as_json_answer:
        answer = {"client": kind.value, "file": str(place), "written": write, "kept": str(kept) if kept else None}
        details = {"configuration": text, "token": to.token, "notes": notes}
        printer.emit({**answer, **details, "served": served, "seen_by_client": seen})
    elif served is not None:
        _print_check(printer, client, served, seen)


def _print_result(
    printer: Printer, client: ClientSpec, place: Path, text: str, to: Endpoint, *, written: bool, kept: Path | None
) -> None:
    if written:
        printer.progress(f"Wrote the entry of {client.title} into {place}" + (f"; backup: {kept}" if kept else ""))
    else:
        printer.progress(f"For {client.title}, in {place}:")
        printer.out.print(Text(text.rstrip()), soft_wrap=True)
    if not client.holds_token:
        printer.out.print(Text(f"export {TOKEN_VARIABLE}={to.token}"), soft_wrap=True)


def _print_check(printer: Printer, client: ClientSpec, served: list[str], seen: list[str] | None) -> None:
    printer.progress(f"The session serves {len(served)} tools: {', '.join(served)}")
    if seen is None:
        printer.progress(f"{client.title} itself was not checked: it has no program that can be started for this")
        return
    hidden = sorted(set(served) - set(seen))
    printer.progress(
        f"{client.title} itself sees {len(seen)} of them" + (f", and not {', '.join(hidden)}" if hidden else "")
    )


def _write_config(client: ClientSpec, place: Path, to: Endpoint) -> Path | None:
    """Merge our entry into the client's file. Returns the path of the backup; None if there was nothing to back up."""
    before, piece = config_file.read(place), client.piece(to)
    merged = _merge(client, before, piece)
    kept = (
        config_file.save_backup(place, before)
        if before.strip() and not has_entry(before, piece, toml=client.toml)
        else None
    )
    config_file.replace(place, before, merged, private=client.holds_token)
    return kept


def _merge(client: ClientSpec, before: str, piece: ConfigEntry) -> str:
    return (merge_toml if client.toml else merge_json)(before, piece)


def _endpoint(
    printer: Printer,
    *,
    url: str | None,
    token: str | None,
    wait_s: int | None,
    workspace: Path | None,
    data_dir: Path | None,
) -> Endpoint:
    if bool(url) != bool(token):
        raise TokenMissing("--url and --token belong together.", advice="Give both, or neither.")
    settings = load_settings(data_dir)
    limit_s = wait_s + CALL_MARGIN_S if wait_s is not None else call_limit_s(settings.wait_s)
    if not url or not token:
        url, token = _open_session(printer, settings, workspace)
    else:
        printer.progress(
            f"Using the session of the given token (--token or {TOKEN_VARIABLE}); without one, a new session is opened"
        )
    return Endpoint(url, token, limit_s, wait_s, own_command())


def own_command() -> str:
    """Return the path of this program; only its name if the path is unknown."""
    installed = Path(sys.executable).with_name("codesdk")
    return str(installed) if installed.is_file() else shutil.which("codesdk") or "codesdk"


def _open_session(printer: Printer, settings: Settings, workspace: Path | None) -> tuple[str, str]:
    with connect(settings) as daemon:
        by = "codesdk connect"
        opened = create_session(daemon, workspace, mode=PermissionMode.AUTO, opened_by=by, progress=printer.progress)
    printer.progress(f"Opened session {opened.session.id}; `codesdk sessions close {opened.session.id}` ends it")
    return opened.mcp_url, opened.token
