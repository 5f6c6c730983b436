"""`codesdk connect`: prints a client's piece of configuration, or writes it into the client's file; and checks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from rich.text import Text

from codesdk.cli.agents import MARGIN_S, call_limit_s
from codesdk.cli.bridge import TokenMissing
from codesdk.cli.connecting import trial
from codesdk.cli.connecting.clients import CLIENTS, TOKEN, Client, Endpoint, Kind, as_json, as_toml
from codesdk.cli.connecting.merging import into_json, into_toml
from codesdk.cli.connecting.programs import PROGRAMS
from codesdk.cli.daemon import connect
from codesdk.cli.opening import open_with
from codesdk.cli.places import settings_of
from codesdk.cli.schema.files import CannotWrite
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
        ToolsNotSeen: the check came to nothing.
        Fault: no session could be opened.
    """
    voice = Voice(as_json=as_json_answer)
    client = CLIENTS[kind]
    to = _endpoint(voice, url=url, token=token, wait_s=wait_s, workspace=workspace, data_dir=data_dir)
    piece = client.piece(to)
    place = file or client.file(Path.home(), Path.cwd())
    text = as_toml(piece) if client.toml else as_json(piece)
    if write:
        _write(client, place, _read(place), to)
    seen = served = None
    if check:
        served = trial.served(to)
        seen = trial.seen_by(kind, to)
    if as_json_answer:
        answer = {"client": kind.value, "file": str(place), "written": write, "configuration": text, "token": to.token}
        voice.give({**answer, "notes": list(client.notes), "served": served, "seen_by_client": seen})
        return
    if write:
        voice.say(f"Wrote the entry of {client.title} into {place}")
    else:
        voice.say(f"For {client.title}, in {place}:")
        voice.out.print(Text(text.rstrip()), soft_wrap=True)
    if not client.holds_token:
        voice.out.print(Text(f"export {TOKEN}={to.token}"), soft_wrap=True)
    for note in client.notes:
        voice.say(note)
    if served is not None:
        voice.say(f"The session serves {len(served)} tools: {', '.join(served)}")
        voice.say(
            f"{client.title} itself sees {len(seen)} of them"
            if seen is not None
            else f"{client.title} itself was not asked: {_unasked(kind)}"
        )


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
    return Endpoint(url, token, limit_s, wait_s, own_command())


def _unasked(kind: Kind) -> str:
    if kind not in PROGRAMS:
        return "there is no program of it that can be asked"
    return f"there is no `{PROGRAMS[kind][0]}` on this PATH"


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


def _read(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CannotWrite(f"{place} cannot be read: {error}.", advice="Name another with --file.") from error


def _write(client: Client, place: Path, before: str, to: Endpoint) -> None:
    """Replace the file whole, or not at all; a new one that holds the token is the owner's alone."""
    merged = (into_toml if client.toml else into_json)(before, client.piece(to))
    target = place.resolve()  # a link stays one
    fresh = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        fresh.touch(mode=0o600, exist_ok=False)
        fresh.write_text(merged, encoding="utf-8")
        fresh.chmod(mode & ~0o077 if client.holds_token else mode)
        fresh.replace(target)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise CannotWrite(
            f"{place} cannot be written: {error.strerror}.", advice="Name another with --file."
        ) from error
