"""`codesdk policy diff` and `replay`: compare decisions under two bundles."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path

from codesdk.cli.api_client import NotRunning
from codesdk.cli.console.terminal import pluralize
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.policy import Format
from codesdk.cli.policy.decisions import NotACall, parse_trial
from codesdk.cli.policy.loading import bundle_directory, known_tools
from codesdk.cli.policy.reports import Item, Kind, Report, write
from codesdk.domain.decisions import Effect
from codesdk.domain.ids import TenantId
from codesdk.errors import ExitCode
from codesdk.policy import load_bundle
from codesdk.policy.evaluation.comparison import DecisionChange, compare_bundles, compare_calls
from codesdk.policy.evaluation.query import PolicyQuery
from codesdk.policy.rollout.version_service import RecordedBundles
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.storage.migration import require_current_schema
from codesdk.storage.timeouts import NO_TIMEOUT
from codesdk.toolcalls.records import policy_inputs

MAX_INPUT_CHARS = 160
"""Characters of a call's input in a report."""


def compare(
    before: Path | None,
    after: Path,
    calls: Path | None,
    data_dir: Path | None,
    *,
    days: float,
    report: Format,
    accept: bool,
) -> int:
    """Evaluate the calls under both bundles. Returns 1 if the second newly allows a call, unless `accept` is set.

    Raises:
        PolicyInvalid: a bundle is invalid. NotACall: a line is not a call. NotRunning: there is no database.
    """
    tools = known_tools()
    new = load_bundle(bundle_directory(after), tools)
    settings = load_settings(data_dir)
    with active_bundles(settings) if before is None else nullcontext() as running:
        if running is not None and running.shared is not None:
            # Evaluate as the installation does: tenants' and sessions' rules apply on top of both bundles.
            old, now, then = running.shared, running.with_shared(running.shared), running.with_shared(new)
            found = compare_calls(
                read_recorded_calls(settings, days),
                tools,
                lambda trial: now(TenantId(trial.session.tenant), trial.session.policy_hash),
                lambda trial: then(TenantId(trial.session.tenant), trial.session.policy_hash),
            )
        else:
            old = load_bundle(bundle_directory(before), tools)
            trials = read_calls(calls) if calls is not None else read_recorded_calls(settings, days)
            found = compare_bundles(trials, tools, old, new)
    matrix = {f"{one}→{other}": count for (one, other), count in sorted(found.matrix.items())}
    moved = sum(count for (one, other), count in found.matrix.items() if one is not other)
    summary = f"{pluralize(found.total, 'call')}, {moved} decided differently, {found.new_allows} newly allowed"
    if matrix:
        summary += ": " + ", ".join(f"{name} {count}" for name, count in matrix.items())
    facts = {
        "calls": found.total,
        "matrix": matrix,
        "new_allows": found.new_allows,
        "before": old.hash,
        "after": new.hash,
    }
    write(Report("diff", [_item(change, after) for change in found.changes], summary, facts), report)
    return ExitCode.FAILED if found.new_allows and not accept else ExitCode.OK


@contextmanager
def active_bundles(settings: Settings) -> Iterator[RecordedBundles | None]:
    """Yield the bundles in force according to the database; None if there is no database.

    Raises:
        StorageUnavailable, SchemaBehind: the database doesn't answer, or has an older version's schema.
    """
    if not settings.has_database():
        yield None
        return
    with closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database:
        require_current_schema(database)
        yield RecordedBundles(database)


def read_calls(path: Path) -> Iterator[PolicyQuery]:
    """Read calls from a file of JSON lines.

    Raises:
        NotACall: with the line number.
    """
    try:
        with sys.stdin.buffer if str(path) == "-" else path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _parse_line(line, number)
    except OSError as error:
        raise NotACall(f"The calls cannot be read: {error}.") from error


def read_recorded_calls(settings: Settings, days: float) -> Iterator[PolicyQuery]:
    """Read an installation's recorded calls.

    Raises:
        NotRunning: there is no database. StorageUnavailable: it doesn't answer. SchemaBehind: its schema is older.
    """
    if not settings.has_database():
        advice = "Name another --data-dir, or give calls in a file with --calls."
        raise NotRunning(f"There is no database in {settings.data_dir}.", advice=advice)
    # No time limit: the query for the first page scans all older calls.
    with closing(Database(settings.resolved_database_url(), NO_TIMEOUT)) as database:
        require_current_schema(database)
        yield from policy_inputs.inputs_since(database, days)


def _parse_line(line: bytes, number: int) -> PolicyQuery:
    try:
        return parse_trial(line)
    except NotACall as fault:
        raise NotACall(f"Line {number}: {fault}") from fault


def _item(change: DecisionChange, after: Path) -> Item:
    shown = str(change.trial.input.get("command", change.trial.input))
    shown = " ".join(shown.split())
    shown = shown if len(shown) <= MAX_INPUT_CHARS else f"{shown[: MAX_INPUT_CHARS - 1]}…"
    rules = ", ".join(change.after.rules) or "default"
    kind: Kind = "error" if change.after.effect is Effect.ALLOW else "warning"
    return Item(
        str(after), 1, 1, f"{change.name} by {rules}: {change.after.reason}", kind, f"{change.trial.tool} {shown}"
    )
