"""Restores a backup as an independent installation.

The original may still run, so the copy must not act for it. It gets its own instance id (sweeps ignore the original's
containers), a new epoch in every log (a cursor from the original gets one `resync`), no sandboxes and no open sessions.
"""

from __future__ import annotations

import secrets
import shutil
from functools import partial
from pathlib import Path

from codesdk.archive import manifest, store
from codesdk.archive.backup import DATABASE, EXTRA_FILES, rename_durably
from codesdk.archive.manifest import BackupInvalid, Manifest
from codesdk.bootstrap.maintenance import MaintenanceServices, open_maintenance_services
from codesdk.domain.calls import CallState
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault
from codesdk.eventlog.audit import INSTALLATION, AuditAction, AuditTrail
from codesdk.eventlog.hints import LocalHints
from codesdk.eventlog.log import EventLog
from codesdk.jobs import LocalWakeups
from codesdk.policy.rollout.session_rules import SessionRules
from codesdk.sandbox.profiles.loader import Profiles
from codesdk.sessions import SessionService
from codesdk.settings import Settings, runfile
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.toolcalls.records import store as call_store
from codesdk.toolcalls.retries.lost_calls import end_lost

REASON = "restored from a backup"
LOST_CALL_TEXT = (
    "This call was running when the backup was made that this record was restored from, and how it ended is not in it. "
    "It was not run again."
)


class RestoreRefused(Fault):
    """The backup cannot be restored there."""

    code = "RESTORE_REFUSED"
    status = 400
    exit_code = ExitCode.CANNOT_WRITE


class RestoreSummary(FrozenModel):
    """The result of a restore."""

    data_dir: str
    instance: str
    """Instance id of the copy."""
    backup_of: str
    """Instance id of the original."""
    files: int
    lost_calls: int
    """Calls that ran when the backup was made, now ended as lost."""
    closed_sessions: int
    damaged: tuple[str, ...] = ()
    """Hashes of artifacts that were damaged before the backup."""


def restore(source: Path, settings: Settings) -> RestoreSummary:
    """Verify the backup, then restore it into an empty or new data directory.

    Raises:
        BackupInvalid: verification failed. Nothing was written.
        RestoreRefused: the directory is not empty, is in use, or cannot be written.
    """
    target = settings.data_dir
    if settings.database_url or settings.artifacts_url:
        raise RestoreRefused(
            "A backup is restored into a data directory, and the settings name a database or store elsewhere.",
            advice="Unset CODESDK_DATABASE_URL and CODESDK_ARTIFACTS_URL.",
        )
    if runfile.read(target, "api") is not None:
        raise RestoreRefused(f"CodeSDK runs on {target}.", advice="Name a new --data-dir.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise RestoreRefused(f"{target} is not empty.", advice="Name a new --data-dir; a restore never replaces one.")
    made = manifest.read(source)
    if DATABASE not in {one.path for one in made.files}:
        raise BackupInvalid(f"The backup in {source} has no database.", advice="Use another backup.")
    manifest.verify(source, made.files)
    fresh = target.with_name(f".{target.name}.partial-{secrets.token_hex(4)}")
    try:
        restored = _copy_and_detach(source, made, settings.model_copy(update={"data_dir": fresh}))
        rename_durably(fresh, target)
    except OSError as error:
        raise RestoreRefused(
            f"{target} cannot be written: {error}.", advice="Free up space, or name another directory."
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return restored.model_copy(update={"data_dir": str(target)})


def _copy_and_detach(source: Path, made: Manifest, settings: Settings) -> RestoreSummary:
    for one in made.files:
        if one.path != DATABASE and one.path not in EXTRA_FILES and not one.path.startswith("artifacts/"):
            raise BackupInvalid(
                f"The backup names {one.path}, which is not part of a backup.", advice="Do not use this backup."
            )
        place = settings.data_dir / one.path
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(source / one.path, place)
        place.chmod(0o600)
    with open_maintenance_services(settings) as record:
        lost, closed = _detach_from_original(record)
        known = {"backup_of": made.instance, "made_at": made.created_at, "version": made.version}
        trail, act = AuditTrail(record.clock), AuditAction.INSTALLATION_RESTORED
        instance = settings.instance_id()
        record.writer.run(
            lambda unit: trail.record(unit, INSTALLATION, act, actor="data-directory", target=instance, **known)
        )
    return RestoreSummary(
        data_dir=str(settings.data_dir),
        instance=settings.instance_id(),
        backup_of=made.instance,
        files=len(made.files),
        lost_calls=lost,
        closed_sessions=closed,
        damaged=made.damaged,
    )


def _detach_from_original(record: MaintenanceServices) -> tuple[int, int]:
    log = EventLog(record.database, record.clock, LocalHints())
    record.writer.run(lambda unit: store.renew_epochs(unit.connection, record.ids))
    with record.database.read() as connection:
        running = call_store.list_in_state(connection, CallState.RUNNING)
    for stored in running:
        record.writer.run(partial(end_lost, log=log, stored=stored, text=LOST_CALL_TEXT))
    sessions = _sessions(record, log)
    opened = sessions.list_all_open()
    for session in opened:
        sessions.close_if(session.tenant_id, session.id, REASON, lambda _: True)
    record.writer.run(lambda unit: store.forget_sandboxes(unit.connection, REASON))
    record.writer.run(lambda unit: store.forget_endpoints(unit.connection))
    now = record.clock.now().timestamp()
    record.writer.run(lambda unit: store.forget_engines(unit.connection, now))
    return len(running), len(opened)


def _sessions(record: MaintenanceServices, log: EventLog) -> SessionService:
    directory = IdentityDirectory(record.database, record.clock, record.ids, quotas=record.quotas, writer=record.writer)
    return SessionService(
        database=record.database,
        writer=record.writer,
        log=log,
        artifacts=record.artifacts,
        directory=directory,
        wakeups=LocalWakeups(),
        clock=record.clock,
        ids=record.ids,
        profiles=Profiles({}),
        rules=SessionRules(record.database, ()),
        quotas=record.quotas,
        token_ttl_s=1.0,
    )
