"""`codesdk backup` and `codesdk restore`."""

from __future__ import annotations

from pathlib import Path

from codesdk.archive.backup import back_up
from codesdk.archive.restore import restore
from codesdk.bootstrap.record import open_record
from codesdk.cli.places import settings_of
from codesdk.cli.plain import counted
from codesdk.cli.voice import Voice
from codesdk.errors import ExitCode


def make(target: Path, *, data_dir: Path | None, as_json: bool) -> int:
    """Make a backup; exit code 1 where artifacts were damaged before it."""
    voice = Voice(as_json=as_json)
    with open_record(settings_of(data_dir)) as record:
        made = back_up(record, target.absolute())
    size = sum(one.size for one in made.files)
    if as_json:
        said = made.model_dump(mode="json", exclude={"files"})
        voice.give({**said, "path": str(target), "files": len(made.files), "bytes": size})
    else:
        voice.out.print(f"Backed up {len(made.files)} files, {size} bytes, to {target}.", soft_wrap=True)
    for content_hash in made.damaged:
        voice.warn(f"An artifact was damaged or gone already, and is not in the backup: {content_hash}")
    return ExitCode.FAILED if made.damaged else ExitCode.OK


def put_back(source: Path, *, data_dir: Path, as_json: bool) -> None:
    """Restore a backup into a new data directory."""
    voice = Voice(as_json=as_json)
    restored = restore(source.absolute(), settings_of(data_dir))
    if as_json:
        voice.give(restored.model_dump(mode="json"))
        return
    voice.out.print(
        f"Restored {counted(restored.files, 'file')} into {restored.data_dir}, as instance {restored.instance}.\n"
        f"Open sessions that were closed: {restored.closed_sessions}. Running calls that ended as lost: {restored.lost_calls}.",
        soft_wrap=True,
    )
