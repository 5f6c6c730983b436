"""`codesdk policy suggest`."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from codesdk.cli.places import settings_of
from codesdk.cli.policy.comparisons import running_bundles
from codesdk.cli.policy.loading import Loaded, load
from codesdk.cli.policy.questions import NotACall, trial_from
from codesdk.documents import dumped
from codesdk.domain.decisions import Effect, PermissionMode
from codesdk.domain.ids import TenantId
from codesdk.errors import ExitCode
from codesdk.policy import Bundle
from codesdk.policy.suggestion import suggest_case, suggest_rule
from codesdk.policy.trial import Trial, judge
from codesdk.storage.database import Database
from codesdk.storage.migration import check
from codesdk.toolcalls import recorded

_UNNEEDED = "# Nothing is suggested: such a call is allowed already."
_BY_MODE = "# Nothing is suggested: the rules allow such a call. The session's mode asks, and no rule changes that."


def print_suggestion(call: str, policies: Path | None, data_dir: Path | None) -> int:
    """Two pieces of YAML on standard output: for a file of the bundle, and for one of its tests.

    Comments alone where the rules allow such a call already.

    Raises:
        NotACall: no such call, or a tool that does not exist. NoSafeRule: nothing narrow enough would allow it.
    """
    trial = trial_from(call.encode()) if call.lstrip().startswith("{") else _recorded(call, data_dir)
    loaded = load(policies)
    if trial.tool not in loaded.tools:
        raise NotACall(f"There is no tool {trial.tool}.")
    bundle = _in_force(loaded, trial, policies, data_dir)
    now = judge(trial, loaded.tools, bundle)
    said = f"# Now: {now.effect} by {', '.join(now.rules) or 'default'}."
    # A mode alone decides nothing here: no rule helps where `ask` asks, and one does where only `yolo` allows.
    if judge(trial.model_copy(update={"mode": PermissionMode.AUTO}), loaded.tools, bundle).effect is Effect.ALLOW:
        sys.stdout.write(f"{said}\n{_UNNEEDED if now.effect is Effect.ALLOW else _BY_MODE}\n")
        return ExitCode.OK
    rule = suggest_rule(trial, loaded.tools[trial.tool])
    out = [said]
    if now.effect is Effect.DENY:
        out += [
            f"# {' '.join(now.reason.split())}",
            "# What follows would ALLOW a call that is denied now: take it only where the deny is the mistake.",
        ]
    if now.rules and now.effect is not Effect.ALLOW:
        out.append("# That rule stays stricter than this one: write the exception into its `unless` instead.")
    out += ["# For a file of the bundle, beneath `rules:`", dumped([rule]).rstrip(), ""]
    out += [
        "# For a file in the bundle's folder `tests`, beneath `cases:`",
        dumped([suggest_case(trial, rule)]).rstrip(),
    ]
    sys.stdout.write("\n".join(out) + "\n")
    return ExitCode.OK


def _in_force(loaded: Loaded, trial: Trial, policies: Path | None, data_dir: Path | None) -> Bundle:
    """What the installation decides such a call by, where it has a record of that and no other bundle was named."""
    if policies is not None:
        return loaded.bundle
    with running_bundles(settings_of(data_dir), list(loaded.tools)) as running:
        if running is None or running.shared is None:
            return loaded.bundle
        return running.beneath(running.shared)(TenantId(trial.session.tenant), trial.session.policy_hash)


def _recorded(call: str, data_dir: Path | None) -> Trial:
    settings = settings_of(data_dir)
    found = None
    if settings.database_url or (settings.data_dir / "codesdk.db").exists():
        with closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database:
            check(database)
            found = recorded.trial(database, call)
    if found is None:
        message = f"There is no recorded call {call} in {settings.data_dir}."
        raise NotACall(message, advice="Name another --data-dir, or give the call as JSON.")
    return found
