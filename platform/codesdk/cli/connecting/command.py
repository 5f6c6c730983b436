"""`codesdk connect`: prints a client's piece of configuration, or writes it into the client's file; and checks."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.text import Text

from codesdk.cli.agents import MARGIN_S, call_limit_s
from codesdk.cli.bridge import TokenMissing
from codesdk.cli.connecting import files, reach, trial
from codesdk.cli.connecting.clients import CLIENTS, TOKEN_VARIABLE, Client, Endpoint, Kind, Piece, as_json, as_toml
from codesdk.cli.connecting.merging import holds, into_json, into_toml
from codesdk.cli.daemon import connect
from codesdk.cli.opening import open_with
from codesdk.cli.places import settings_of
from codesdk.cli.voice import Voice
from codesdk.domain.decisions import PermissionMode
from codesdk.settings import Settings


def run(
    kind: Kind,
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
    """Do it.

    Raises:
        TokenMissing: only one of address and token was given.
        NotMergeable, CannotWrite: the client's file was left as it was.
        HostUnreachable, HostNotReady, TokenRefused, NoSession, ClientAbsent, ClientSilent, ToolsNotSeen: the check came to nothing.
        Fault: no session could be opened.
    """
    voice = Voice(as_json=as_json_answer)
    client = CLIENTS[kind]
    place = file or client.file(Path.home(), Path.cwd())
    if write:  # what cannot be merged is told before a session is opened for it
        _merged(client, files.read(place), client.piece(Endpoint("http://127.0.0.1", "", limit_s=1)))
    to = _endpoint(voice, url=url, token=token, wait_s=wait_s, workspace=workspace, data_dir=data_dir)
    piece = client.piece(to)
    notes = [note.format(limit_s=to.limit_s) for note in client.notes]
    text = as_toml(piece) if client.toml else as_json(piece)
    kept = _write(client, place, to) if write else None
    if not as_json_answer:
        _tell(voice, client, place, text, to, written=write, kept=kept)
        for note in notes:
            voice.say(note)
    served = reach.served(to) if check else None
    seen = trial.seen_by(kind, to) if check else None
    if as_json_answer:
        answer = {"client": kind.value, "file": str(place), "written": write, "kept": str(kept) if kept else None}
        told = {"configuration": text, "token": to.token, "notes": notes}
        voice.give({**answer, **told, "served": served, "seen_by_client": seen})
    elif served is not None:
        _tell_of_check(voice, client, served, seen)


def _tell(
    voice: Voice, client: Client, place: Path, text: str, to: Endpoint, *, written: bool, kept: Path | None
) -> None:
    if written:
        voice.say(f"Wrote the entry of {client.title} into {place}" + (f"; as it was: {kept}" if kept else ""))
    else:
        voice.say(f"For {client.title}, in {place}:")
        voice.out.print(Text(text.rstrip()), soft_wrap=True)
    if not client.holds_token:
        voice.out.print(Text(f"export {TOKEN_VARIABLE}={to.token}"), soft_wrap=True)


def _tell_of_check(voice: Voice, client: Client, served: list[str], seen: list[str] | None) -> None:
    voice.say(f"The session serves {len(served)} tools: {', '.join(served)}")
    if seen is None:
        voice.say(f"{client.title} itself was not asked: there is no program of it that can be asked")
        return
    hidden = sorted(set(served) - set(seen))
    voice.say(f"{client.title} itself sees {len(seen)} of them" + (f", and not {', '.join(hidden)}" if hidden else ""))


def _write(client: Client, place: Path, to: Endpoint) -> Path | None:
    """Merge our entry into the client's file. Gives where it is kept as it was, if it was there and had none of ours."""
    before, piece = files.read(place), client.piece(to)
    merged = _merged(client, before, piece)
    kept = files.keep(place, before) if before.strip() and not holds(before, piece, toml=client.toml) else None
    files.replace(place, before, merged, private=client.holds_token)
    return kept


def _merged(client: Client, before: str, piece: Piece) -> str:
    return (into_toml if client.toml else into_json)(before, piece)


def _endpoint(
    voice: Voice,
    *,
    url: str | None,
    token: str | None,
    wait_s: int | None,
    workspace: Path | None,
    data_dir: Path | None,
) -> Endpoint:
    if bool(url) != bool(token):
        raise TokenMissing("--url and --token belong together.", advice="Give both, or neither.")
    settings = settings_of(data_dir)
    limit_s = wait_s + MARGIN_S if wait_s is not None else call_limit_s(settings.wait_s)
    if not url or not token:
        url, token = _open(voice, settings, workspace)
    else:
        voice.say(f"For the session whose token was given (--token, or {TOKEN_VARIABLE}); without it another is opened")
    return Endpoint(url, token, limit_s, wait_s, own_command())


def own_command() -> str:
    """Where this very program lies; by its name alone where that cannot be told."""
    beside = Path(sys.executable).with_name("codesdk")
    return str(beside) if beside.is_file() else shutil.which("codesdk") or "codesdk"


def _open(voice: Voice, settings: Settings, workspace: Path | None) -> tuple[str, str]:
    with connect(settings) as daemon:
        by = "codesdk connect"
        opened = open_with(daemon, workspace, mode=PermissionMode.AUTO, opened_by=by, say=voice.say)
    voice.say(f"Opened session {opened.session.id}; `codesdk sessions close {opened.session.id}` ends it")
    return opened.mcp_url, opened.token
