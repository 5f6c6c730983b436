"""`codesdk artifacts …`: artifacts of the running daemon as local files, and garbage collection."""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from rich.table import Table
from rich.text import Text

from codesdk.artifacts import Artifact, ArtifactDamaged
from codesdk.bootstrap.maintenance import open_maintenance_services
from codesdk.cli.api_client import connect
from codesdk.cli.console.terminal import Printer, format_time, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import ExitCode, Fault

CHUNK_BYTES = 1024 * 1024


class FileRefused(Fault):
    """A file can't be read or written."""

    code = "FILE_REFUSED"
    status = 400
    exit_code = ExitCode.CANNOT_WRITE


def show(session: str | None, *, data_dir: Path | None, as_json: bool) -> None:
    """List artifacts."""
    with connect(load_settings(data_dir)) as daemon:
        found = list(daemon.artifacts(session))
    Printer(as_json=as_json).listing("artifacts", found, table, "There is no artifact.")


def get(artifact: str, output: Path | None, *, data_dir: Path | None, as_json: bool) -> None:
    """Write an artifact to `output` atomically, or to stdout, which may receive bytes before a failure.

    Raises:
        ArtifactDamaged: the received bytes don't match the recorded hash.
    """
    with connect(load_settings(data_dir)) as daemon, daemon.download(artifact) as (content_hash, pieces):
        checked = _verified(artifact, content_hash, pieces)
        if output is None:
            for piece in checked:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return
        _write(output, checked)
    answer = {"artifact_id": artifact, "content_hash": content_hash, "path": str(output)}
    Printer(as_json=as_json).answer(answer, f"Wrote {output} ({content_hash}).")


def put(
    file: Path, *, name: str | None, content_type: str, session: str | None, data_dir: Path | None, as_json: bool
) -> None:
    """Upload a file in chunks.

    Raises:
        FileRefused: it can't be read.
    """
    with connect(load_settings(data_dir)) as daemon:
        try:
            with file.open("rb") as content:
                made = daemon.send(_pieces(content), name or file.name, content_type, session)
        except OSError as error:
            raise FileRefused(f"{file} cannot be read: {(error.strerror or str(error)).lower()}.") from error
    Printer(as_json=as_json).answer(made, f"{made.id}: {made.size} bytes, {made.content_hash}")


def delete(artifact: str, *, data_dir: Path | None, as_json: bool) -> None:
    """Delete an artifact."""
    with connect(load_settings(data_dir)) as daemon:
        gone = daemon.delete_artifact(artifact)
    text = f"Deleted {gone.id}. Garbage collection removes its bytes unless another artifact refers to them."
    Printer(as_json=as_json).answer(gone, text)


def collect(*, delete_unknown: bool, data_dir: Path | None, as_json: bool) -> None:
    """Run garbage collection on the database itself."""
    with open_maintenance_services(load_settings(data_dir)) as record:
        done = record.collector.collect(delete_unknown=delete_unknown)
    text = f"Removed {done.blobs} unreferenced, {done.unfinished} unfinished and {done.strays} unknown blobs."
    Printer(as_json=as_json).answer(done, text)


def table(found: Sequence[Artifact]) -> Table:
    """One row per artifact. Ids are never cut, because other commands need them."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("artifact", no_wrap=True, min_width=30)
    shown.add_column("bytes", justify="right", no_wrap=True)
    shown.add_column("made (UTC)", no_wrap=True, min_width=19)
    shown.add_column("name", overflow="fold")
    for artifact in found:
        made = format_time(artifact.created_at)
        shown.add_row(artifact.id, str(artifact.size), made, Text(sanitize(artifact.name)))
    return shown


def _verified(artifact: str, content_hash: str, pieces: Iterable[bytes]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
        yield piece
    if f"sha256:{digest.hexdigest()}" != content_hash:
        raise ArtifactDamaged(
            f"The received bytes of artifact {artifact} do not match its hash.", advice="Download it again."
        )


def _write(output: Path, pieces: Iterable[bytes]) -> None:
    fresh = output.with_name(f".{output.name}-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        with fresh.open("xb") as file:
            for piece in pieces:
                file.write(piece)
        fresh.rename(output)
    except OSError as error:
        raise FileRefused(f"{output} cannot be written: {(error.strerror or str(error)).lower()}.") from error
    finally:
        fresh.unlink(missing_ok=True)


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(CHUNK_BYTES):
        yield piece
