"""`codesdk up`: the stack in the foreground, with a session to connect to."""

from __future__ import annotations

import shlex
from pathlib import Path

from codesdk.cli.environment import execution_env
from codesdk.cli.opening import open_with
from codesdk.cli.places import settings_of
from codesdk.cli.sandbox_choice import with_sandbox
from codesdk.cli.sandbox_kind import SandboxKind
from codesdk.cli.stack.signals import Signals
from codesdk.cli.stack.stack import Stack
from codesdk.cli.voice import Voice
from codesdk.cli.welcome import opened_as_json, welcome
from codesdk.cli.workspace import check_directory
from codesdk.domain.decisions import PermissionMode


def run(
    *,
    data_dir: Path | None,
    policies: Path | None,
    port: int | None,
    workspace: Path | None,
    mode: PermissionMode,
    profile: str,
    rules: Path | None,
    sandbox: SandboxKind | None,
    as_json: bool,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        Fault: what kept it from starting; everything that had been started is stopped.
    """
    voice = Voice(as_json=as_json)
    if workspace is not None:
        check_directory(workspace)
    settings = with_sandbox(settings_of(data_dir, policies, port), sandbox, voice.warn)
    signals = Signals()
    try:
        with Stack(settings, voice.say, profile) as stack:
            by = "codesdk up"
            say = voice.say
            opened = open_with(stack.daemon, workspace, mode=mode, opened_by=by, say=say, profile=profile, rules=rules)
            signals.only_noted()
            if (pinned := stack.daemon.pinned_policy()) is not None:
                voice.warn(
                    f"The files in {settings.policies_dir} do not decide: the version {pinned} is in force, by `codesdk policy"
                    " promote` or `rollback`. `codesdk policy rollback --to-files` lets the files decide."
                )
            if as_json:
                voice.give(
                    opened_as_json(
                        opened,
                        url=stack.daemon.url,
                        data_dir=str(settings.data_dir),
                        execution_env=execution_env(settings),
                    )
                )
            else:
                elsewhere = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir is not None else ""
                welcome(voice.out, opened, settings)
                voice.say(
                    f"Ready. Approve what asks with `codesdk approvals watch{elsewhere}`; Ctrl-C stops everything."
                )
            stack.watch(voice.warn, signals.wait_for_stop)
            voice.say("Stopping")
    finally:
        signals.only_noted()
