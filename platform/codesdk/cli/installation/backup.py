"""`codesdk backup` and `codesdk restore`."""

from __future__ import annotations

from pathlib import Path

from codesdk.archive import backup
from codesdk.archive.restore import restore
from codesdk.bootstrap.maintenance import open_maintenance_services
from codesdk.cli.console.printer import Printer
from codesdk.cli.console.text import pluralize
from codesdk.cli.effective_settings import load_settings
from codesdk.errors import ExitCode


def create_backup(target: Path, *, data_dir: Path | None, as_json: bool) -> int:
    """Create a backup; the exit code is 1 if it found artifacts that were damaged before."""
    printer = Printer(as_json=as_json)
    with open_maintenance_services(load_settings(data_dir)) as record:
        made = backup.create_backup(record, target.absolute())
    size = sum(one.size for one in made.files)
    if as_json:
        said = made.model_dump(mode="json", exclude={"files"})
        printer.emit({**said, "path": str(target), "files": len(made.files), "bytes": size})
    else:
        printer.out.print(f"Backed up {len(made.files)} files, {size} bytes, to {target}.", soft_wrap=True)
    for content_hash in made.damaged:
        printer.warn(f"An artifact was damaged or gone already, and is not in the backup: {content_hash}")
    return ExitCode.FAILED if made.damaged else ExitCode.OK


def restore_backup(source: Path, *, data_dir: Path, as_json: bool) -> None:
    """Restore a backup into a new data directory."""
    printer = Printer(as_json=as_json)
    restored = restore(source.absolute(), load_settings(data_dir))
    if as_json:
        printer.emit(restored.model_dump(mode="json"))
        return
    printer.out.print(
        f"Restored {pluralize(restored.files, 'file')} into {restored.data_dir}, as instance {restored.instance}.\n"
        f"Open sessions that were closed: {restored.closed_sessions}. Running calls that ended as lost: {restored.lost_calls}.",
        soft_wrap=True,
    )
