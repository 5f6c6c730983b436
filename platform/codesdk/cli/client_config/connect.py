"""`codesdk connect`: prints a client's configuration or writes it to the client's file, and checks the connection."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from codesdk.cli.api_client import ApiClient, OpenedSession, connect
from codesdk.cli.client_config import client_check, config_file, endpoint_check
from codesdk.cli.client_config.client_files import ClientFile, client_files
from codesdk.cli.client_config.clients import CLIENTS, TOKEN_VARIABLE, ClientKind, ClientSpec, Endpoint
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.session.agent_commands import CALL_MARGIN_S, call_limit_s
from codesdk.cli.session.create import create_session, describe_workspace
from codesdk.cli.session.stdio_bridge import TokenMissing
from codesdk.domain.decisions import PermissionMode
from codesdk.errors import ExitCode, Fault
from codesdk.sessions import SessionUnknown
from codesdk.settings import Settings

MAX_SESSIONS = 500
"""Newest sessions among which an open one is looked for."""


class BuiltInsStayOn(Fault):
    """Nothing that `codesdk connect` writes switches off this client's built-in tools."""

    code = "BUILT_INS_STAY_ON"
    status = 409
    exit_code = ExitCode.FAILED


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
    strict: bool,
    data_dir: Path | None,
    as_json_answer: bool,
) -> None:
    """Print, write or check the configuration of a client.

    Raises:
        BuiltInsStayOn: with `strict`, before anything else happens.
        TokenMissing: only one of URL and token was given.
        NotMergeable, CannotWrite: the client's files are unchanged, or only the first is written.
        HostUnreachable, HostNotReady, TokenRefused, NoSession, ClientAbsent, ClientSilent, ToolsNotSeen, BuiltInsOn: the
        check failed.
        Fault: no session could be opened.
    """
    printer = Printer(as_json=as_json_answer)
    client = CLIENTS[kind]
    place = file or client.file(Path.home(), Path.cwd())
    if client.stays_on is not None:
        if strict:
            raise BuiltInsStayOn(client.stays_on, advice="Leave out --strict to connect it nevertheless.")
        printer.warn(client.stays_on)
    if write:  # fail on a file that can't be merged before opening a session
        for each in client_files(client, place, Endpoint("http://127.0.0.1", "", limit_s=1)):
            each.merged(config_file.read(each.place))
    to = _endpoint(printer, url=url, token=token, wait_s=wait_s, workspace=workspace, data_dir=data_dir)
    files = client_files(client, place, to)
    kept = [each.write() if write else None for each in files]
    notes = [note.format(limit_s=to.limit_s) for note in client.notes]
    if write:
        notes.append(f"To undo it: {'; '.join(each.undo() for each in files)}")
    if not as_json_answer:
        _print_result(printer, client, files, to, written=write, kept=kept)
        for note in notes:
            printer.progress(note)
    served = endpoint_check.list_served_tools(to) if check else None
    written = [config_file.read(each.place) if write else each.text for each in files]
    seen = client_check.list_client_tools(kind, to, written) if check else None
    if as_json_answer:
        described = [
            {"file": str(each.place), "configuration": each.text, "kept": str(backup) if backup else None}
            for each, backup in zip(files, kept, strict=True)
        ]
        answer = {
            "client": kind.value,
            "written": write,
            **described[0],
            "files": described,
            "stays_on": client.stays_on,
        }
        printer.emit({**answer, "token": to.token, "notes": notes, "served": served, "seen_by_client": seen})
    elif served is not None:
        _print_check(printer, client, served, seen)


def _print_result(
    printer: Printer,
    client: ClientSpec,
    files: Sequence[ClientFile],
    to: Endpoint,
    *,
    written: bool,
    kept: Sequence[Path | None],
) -> None:
    for each, backup in zip(files, kept, strict=True):
        if written:
            printer.progress(
                f"Wrote the entry of {client.title} into {each.place}" + (f"; backup: {backup}" if backup else "")
            )
        else:
            printer.progress(f"For {client.title}, in {each.place}:")
            printer.out.print(Text(each.text.rstrip()), soft_wrap=True)
    if client.stays_on is None:
        printer.progress(f"With it, {client.title} has no tools of its own that reach files, processes or the network")
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
    printer.progress("It offers and runs no tool of its own that reaches files, processes or the network")


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
            f"Using the session of the given token (--token or {TOKEN_VARIABLE}); without one, the only open session or a new one is used"
        )
    return Endpoint(url, token, limit_s, wait_s, own_command())


def own_command() -> str:
    """Return the path of this program; only its name if the path is unknown."""
    installed = Path(sys.executable).with_name("codesdk")
    return str(installed) if installed.is_file() else shutil.which("codesdk") or "codesdk"


def _open_session(printer: Printer, settings: Settings, workspace: Path | None) -> tuple[str, str]:
    """Use the only open session, if there is exactly one and no directory is to be copied; otherwise open a new one."""
    with connect(settings) as daemon:
        open_ones = [session for session in daemon.sessions(MAX_SESSIONS) if session.state == "open"]
        only = open_ones[0].id if workspace is None and len(open_ones) == 1 else None
        opened = _use_session(daemon, only) if only is not None else None
        if opened is not None:
            printer.progress(f"Using the only open session, {opened.session.id}, with a new token")
        else:
            by = "codesdk connect"
            opened = create_session(
                daemon, workspace, mode=PermissionMode.AUTO, opened_by=by, progress=printer.progress
            )
            others = f", not one of the {len(open_ones)} that are open" if open_ones else ""
            printer.progress(
                f"Opened session {opened.session.id}{others}; `codesdk sessions close {opened.session.id}` ends it"
            )
    printer.progress(f"The agent sees {describe_workspace(opened.session)}")
    return opened.mcp_url, opened.token


def _use_session(daemon: ApiClient, session: str) -> OpenedSession | None:
    try:
        return daemon.issue_token(session)
    except Fault as fault:
        if fault.code != SessionUnknown.code:
            raise
        return None  # another principal's, or closed meanwhile
