"""`codesdk up`: runs the stack in the foreground and opens a session."""

from __future__ import annotations

import shlex
from pathlib import Path

from codesdk.cli.commands.options import SandboxKind
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.sandboxes.backend_choice import apply_sandbox_choice
from codesdk.cli.session.connection_info import execution_env, opened_as_json, print_connection_info
from codesdk.cli.session.create import create_session
from codesdk.cli.session.workspace_archive import check_directory
from codesdk.cli.stack.signals import Signals
from codesdk.cli.stack.stack import Stack
from codesdk.domain.decisions import PermissionMode


def run(
    *,
    data_dir: Path | None,
    policies: Path | None,
    port: int | None,
    workspace: Path | None,
    git_depth: int | None,
    mode: PermissionMode,
    profile: str,
    rules: Path | None,
    sandbox: SandboxKind | None,
    as_json: bool,
) -> None:
    """Serve until SIGINT or SIGTERM.

    Raises:
        Fault: the start failed; everything that was started is stopped.
    """
    printer = Printer(as_json=as_json)
    if workspace is not None:
        check_directory(workspace)
    settings = apply_sandbox_choice(load_settings(data_dir, policies, port), sandbox, printer.warn)
    signals = Signals()
    try:
        with Stack(settings, printer.progress, profile) as stack:
            by = "codesdk up"
            opened = create_session(
                stack.daemon,
                workspace,
                mode=mode,
                opened_by=by,
                progress=printer.progress,
                profile=profile,
                rules=rules,
                git_depth=git_depth,
            )
            signals.ignore_from_now()
            if (pinned := stack.daemon.pinned_policy()) is not None:
                printer.warn(
                    f"The policy files in {settings.policies_dir} are not in force: `codesdk policy promote` or `rollback` pinned"
                    f" the version {pinned}. `codesdk policy rollback --to-files` puts the files into force."
                )
            if as_json:
                printer.emit(
                    opened_as_json(
                        opened,
                        url=stack.daemon.url,
                        data_dir=str(settings.data_dir),
                        execution_env=execution_env(settings),
                    )
                )
            else:
                elsewhere = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir is not None else ""
                print_connection_info(printer.out, opened, settings)
                printer.progress(
                    f"Ready. Answer approvals with `codesdk approvals watch{elsewhere}`; Ctrl-C stops everything."
                )
            stack.watch(printer.warn, signals.wait_for_stop)
            printer.progress("Stopping")
    finally:
        signals.ignore_from_now()
