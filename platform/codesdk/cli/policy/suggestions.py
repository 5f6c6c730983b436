"""`codesdk policy suggest`: suggests a rule from a recorded call."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from codesdk.cli.effective_settings import load_settings
from codesdk.cli.policy.comparisons import active_bundles
from codesdk.cli.policy.decisions import NotACall, parse_trial
from codesdk.cli.policy.loading import PolicyContext, load
from codesdk.documents import dump_yaml
from codesdk.domain.decisions import Effect, PermissionMode
from codesdk.domain.ids import TenantId
from codesdk.errors import ExitCode
from codesdk.policy import Bundle
from codesdk.policy.evaluation.query import PolicyQuery, evaluate
from codesdk.policy.rule_suggestion import suggest_case, suggest_rule
from codesdk.storage.database import Database
from codesdk.storage.migration import require_current_schema
from codesdk.toolcalls.records import policy_inputs

_ALREADY_ALLOWED = "# No suggestion: such a call is allowed already."
_DECIDED_BY_MODE = "# No suggestion: the rules allow such a call. The session's mode asks, and no rule changes that."


def print_suggestion(call: str, policies: Path | None, data_dir: Path | None) -> int:
    """Print two YAML fragments on stdout: a rule for the bundle, and a test for it.

    Prints only comments if the rules allow such a call already.

    Raises:
        NotACall: there is no such call, or its tool doesn't exist. NoSafeRule: no narrow rule would allow it.
    """
    trial = parse_trial(call.encode()) if call.lstrip().startswith("{") else _recorded_trial(call, data_dir)
    loaded = load(policies)
    if trial.tool not in loaded.tools:
        raise NotACall(f"There is no tool {trial.tool}.")
    bundle = _active_bundle(loaded, trial, policies, data_dir)
    now = evaluate(trial, loaded.tools, bundle)
    header = f"# Now: {now.effect} by {', '.join(now.rules) or 'default'}."
    # Compare without the mode: no rule helps where mode `ask` asks, and one does where only `yolo` allows.
    if evaluate(trial.model_copy(update={"mode": PermissionMode.AUTO}), loaded.tools, bundle).effect is Effect.ALLOW:
        sys.stdout.write(f"{header}\n{_ALREADY_ALLOWED if now.effect is Effect.ALLOW else _DECIDED_BY_MODE}\n")
        return ExitCode.OK
    rule = suggest_rule(trial, loaded.tools[trial.tool])
    out = [header]
    if now.effect is Effect.DENY:
        out += [
            f"# {' '.join(now.reason.split())}",
            "# The rule below would ALLOW a call that is denied now: use it only if the deny is a mistake.",
        ]
    if now.rules and now.effect is not Effect.ALLOW:
        out.append("# The rule above stays stricter than this one: write the exception into its `unless` instead.")
    out += ["# For a file of the bundle, below `rules:`", dump_yaml([rule]).rstrip(), ""]
    out += [
        "# For a file in the bundle's folder `tests`, below `cases:`",
        dump_yaml([suggest_case(trial, rule)]).rstrip(),
    ]
    sys.stdout.write("\n".join(out) + "\n")
    return ExitCode.OK


def _active_bundle(loaded: PolicyContext, trial: PolicyQuery, policies: Path | None, data_dir: Path | None) -> Bundle:
    """Return the installation's bundle in force for such a call.

    Falls back to the loaded bundle if one was given or the installation has no record.
    """
    if policies is not None:
        return loaded.bundle
    with active_bundles(load_settings(data_dir)) as running:
        if running is None or running.shared is None:
            return loaded.bundle
        return running.with_shared(running.shared)(TenantId(trial.session.tenant), trial.session.policy_hash)


def _recorded_trial(call: str, data_dir: Path | None) -> PolicyQuery:
    settings = load_settings(data_dir)
    found = None
    if settings.has_database():
        with closing(Database(settings.resolved_database_url(), settings.database_answer_s)) as database:
            require_current_schema(database)
            found = policy_inputs.input_of_call(database, call)
    if found is None:
        message = f"There is no recorded call {call} in {settings.data_dir}."
        raise NotACall(message, advice="Name another --data-dir, or give the call as JSON.")
    return found
