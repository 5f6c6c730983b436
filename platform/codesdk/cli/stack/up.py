"""`codesdk up`: runs the stack in the foreground and opens a session."""

from __future__ import annotations

import shlex
from pathlib import Path

from codesdk.cli.api_client import OpenedSession
from codesdk.cli.commands.options import SandboxKind
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.sandboxes.backend_choice import apply_sandbox_choice
from codesdk.cli.session.connection_info import execution_env, opened_as_json, print_connection_info
from codesdk.cli.session.create import create_session
from codesdk.cli.session.kept_session import (
    KeptSession,
    SessionOptions,
    read_kept_session,
    write_kept_session,
)
from codesdk.cli.stack.signals import Signals
from codesdk.cli.stack.stack import Stack
from codesdk.client.workspace_archive import check_directory
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
    keep: bool,
    as_json: bool,
) -> None:
    """Serve until SIGINT or SIGTERM. `keep`: leave the session open at the end, and continue the one that was left.

    Raises:
        Fault: the start failed; everything that was started is stopped.
    """
    printer = Printer(as_json=as_json)
    if workspace is not None:
        check_directory(workspace)
    settings = apply_sandbox_choice(load_settings(data_dir, policies, port), sandbox, printer.warn)
    options = SessionOptions(
        workspace=workspace.resolve() if workspace is not None else None,
        git_depth=git_depth,
        mode=mode,
        profile=profile,
        rules=rules.resolve() if rules is not None else None,
    )
    signals = Signals()
    try:
        with Stack(settings, printer.progress, profile, keep=keep) as stack:
            opened = (_continue_session(stack, options, printer) if keep else None) or _open_session(
                stack, options, printer
            )
            if keep:
                write_kept_session(settings.data_dir, KeptSession(opened=opened, options=options))
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
                at_end = "Ctrl-C stops everything, and the session stays." if keep else "Ctrl-C stops everything."
                printer.progress(f"Ready. Answer approvals with `codesdk approvals watch{elsewhere}`; {at_end}")
            stack.watch(printer.warn, signals.wait_for_stop)
            printer.progress("Stopping")
    finally:
        signals.ignore_from_now()


def _open_session(stack: Stack, options: SessionOptions, printer: Printer) -> OpenedSession:
    return create_session(
        stack.daemon,
        options.workspace,
        mode=options.mode,
        opened_by="codesdk up",
        progress=printer.progress,
        profile=options.profile,
        rules=options.rules,
        git_depth=options.git_depth,
    )


def _continue_session(stack: Stack, options: SessionOptions, printer: Printer) -> OpenedSession | None:
    """Return the session that an earlier `codesdk up --keep` left. Closes one that has other options."""
    kept = read_kept_session(stack.settings.data_dir)
    if kept is None or not stack.is_valid(kept.opened.token):
        return None
    session = kept.opened.session.id
    if kept.options != options:
        stack.daemon.close_session(session)
        printer.progress(f"Closed session {session}, which was opened with other options")
        return None
    printer.progress(f"Continuing session {session}, with the workspace and the token that it had")
    return kept.opened.model_copy(update={"mcp_url": f"{stack.settings.public_url or stack.daemon.url}/mcp"})
