"""The command tree: options and help. Each command's code is in another module, imported when the command runs."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for everything that `codesdk up` needs

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.client_config.clients import TOKEN_VARIABLE, URL_VARIABLE, WAIT_VARIABLE, ClientKind
from codesdk.cli.commands.approvals import approvals_app, grants_app
from codesdk.cli.commands.artifacts import artifacts_app
from codesdk.cli.commands.audit import audit_app
from codesdk.cli.commands.events import events_app, transcript
from codesdk.cli.commands.hosts import hosts_app
from codesdk.cli.commands.images import images_app
from codesdk.cli.commands.options import DataDir, Json, Mode, SandboxKind, parse_path
from codesdk.cli.commands.sandbox import sandbox_app
from codesdk.cli.commands.schema import schema_app
from codesdk.cli.commands.tenancy import groups_app, keys_app, tenants_app
from codesdk.cli.commands.webhooks import webhooks_app
from codesdk.cli.policy import policy_app
from codesdk.cli.tools import tools_app
from codesdk.client.git_work_tree import DEPTH
from codesdk.domain.decisions import PermissionMode

app = typer.Typer(
    name="codesdk",
    help="Run the tool calls of AI agents in Docker sandboxes, under a policy that people can read.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
sessions_app = typer.Typer(help="Open, list, stop and close sessions of the running daemon.", no_args_is_help=True)
app.add_typer(approvals_app, name="approvals")
app.add_typer(grants_app, name="grants")
app.add_typer(sessions_app, name="sessions")
app.add_typer(images_app, name="images")
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(schema_app, name="schema")
app.add_typer(events_app, name="events")
app.add_typer(policy_app, name="policy")
app.add_typer(artifacts_app, name="artifacts")
app.add_typer(keys_app, name="keys")
app.add_typer(audit_app, name="audit")
app.add_typer(tenants_app, name="tenants")
app.add_typer(tools_app, name="tools")
app.add_typer(groups_app, name="groups")
app.add_typer(hosts_app, name="hosts")
app.add_typer(webhooks_app, name="webhooks")


Policies = Annotated[
    Path | None,
    typer.Option(
        "--policies",
        parser=parse_path,
        metavar="PATH",
        help="Directory of the policy bundle, or the name of a shipped one: default, demo, sandbox.",
        envvar="CODESDK_POLICIES_DIR",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", help="Port of API and MCP host; 0 takes any free one.", min=0, max=65535, envvar="CODESDK_PORT"
    ),
]
Sandbox = Annotated[
    SandboxKind | None,
    typer.Option(
        "--sandbox",
        help="docker: containers. local: processes of this machine behind bubblewrap, for machines without an engine; protects "
        "it less. plain: processes without isolation. "
        "(default: docker, or CODESDK_LOCAL_SANDBOX)",
    ),
]
ProfileName = Annotated[
    str,
    typer.Option(
        "--profile", help="Resource limits of the session's sandbox: a file in sandbox-images/profiles, without .yaml."
    ),
]
Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        parser=parse_path,
        metavar="PATH",
        help="Directory to copy into the sandbox's workspace (honors .gitignore).",
    ),
]
Git = Annotated[
    bool,
    typer.Option("--git", help="Copy the history of the workspace's git branch as well: its last --git-depth commits."),
]
GitDepth = Annotated[int, typer.Option("--git-depth", help="Commits that --git copies; 0: all.", min=0)]
SessionRules = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        parser=parse_path,
        metavar="FILE",
        help="Policy rules for this session only; they can ask or deny, not allow.",
    ),
]


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def global_options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Global options; the help is the app's."""


@app.command()
def version(*, json: Json = False) -> None:
    """Print the version."""
    from importlib import metadata

    from codesdk.cli.console.terminal import Printer
    from codesdk.domain.events import CONTRACT_VERSION

    package, python = metadata.version("codesdk"), sys.version.split()[0]
    answer = {"version": package, "contract": CONTRACT_VERSION, "python": python}
    text = f"codesdk {package} (runtime contract {CONTRACT_VERSION}, Python {python})"
    Printer(as_json=json).answer(answer, text)


@app.command("init")
def init_(
    *,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="If an operator exists: create a new key and revoke the old one.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Create the data directory, its tenant and the operator's key. The key is printed once.

    Not needed for `codesdk up`, which creates its own key for commands on this machine.
    """
    from codesdk.cli.installation.init import run

    run(rotate=rotate, data_dir=data_dir, as_json=json)


@app.command()
def up(
    *,
    data_dir: DataDir = None,
    policies: Policies = None,
    port: Port = None,
    workspace: Workspace = None,
    git: Git = False,
    git_depth: GitDepth = DEPTH,
    mode: Mode = PermissionMode.AUTO,
    profile: ProfileName = "default",
    rules: SessionRules = None,
    sandbox: Sandbox = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Leave session and sandbox at the end; the next `up --keep` continues them, token included."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Run API, MCP host and worker in the foreground, and open a session for your agent.

    Ctrl-C stops everything it started and, without --keep, closes every session; their logs stay.
    """
    from codesdk.cli.stack.up import run

    run(
        data_dir=data_dir,
        policies=policies,
        port=port,
        workspace=workspace,
        git_depth=git_depth if git else None,
        mode=mode,
        profile=profile,
        rules=rules,
        sandbox=sandbox,
        keep=keep,
        as_json=json,
    )


@app.command()
def demo(
    *,
    data_dir: DataDir = None,
    policies: Policies = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """Run one agent's calls end to end, verify the record, and stop everything that was started."""
    from codesdk.cli.demo.run import run

    run(data_dir=data_dir, policies=policies, sandbox=sandbox, as_json=json)


@app.command()
def migrate(*, data_dir: DataDir = None, json: Json = False) -> None:
    """Migrate the database to this version's schema. `codesdk up` does this automatically."""
    from codesdk.cli.installation.database import migrate as migrate_database

    migrate_database(data_dir=data_dir, as_json=json)


@app.command()
def doctor(*, data_dir: DataDir = None, json: Json = False) -> int:
    """Check everything a run needs and suggest fixes. Changes nothing."""
    from codesdk.cli.installation.doctor import run

    return run(data_dir=data_dir, as_json=json)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", parser=parse_path, help="New directory.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Back up database, artifacts and keys, consistently, even while everything runs."""
    from codesdk.cli.installation.database import create_backup

    return create_backup(target, data_dir=data_dir, as_json=json)


@app.command()
def restore(
    source: Annotated[
        Path, typer.Argument(metavar="SRC", parser=parse_path, help="Directory written by `codesdk backup`.")
    ],
    *,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", parser=parse_path, metavar="PATH", help="New or empty directory.")
    ],
    json: Json = False,
) -> None:
    """Restore a backup as a separate installation, with a new instance id and no open sessions."""
    from codesdk.cli.installation.database import restore_backup

    restore_backup(source, data_dir=data_dir, as_json=json)


@app.command()
def mcp(
    *,
    url: Annotated[str | None, typer.Option("--url", help="MCP URL of a session.", envvar=URL_VARIABLE)] = None,
    token: Annotated[str | None, typer.Option("--token", help="The session's token.", envvar=TOKEN_VARIABLE)] = None,
    workspace: Workspace = None,
    git: Git = False,
    git_depth: GitDepth = DEPTH,
    mode: Mode = PermissionMode.AUTO,
    rules: SessionRules = None,
    data_dir: DataDir = None,
    wait: Annotated[
        int | None,
        typer.Option("--wait", help="Maximum seconds per answer.", envvar=WAIT_VARIABLE, min=1, max=604800),
    ] = None,
    tell_agent: Annotated[
        bool, typer.Option("--tell-agent", help="If the session can't be used, serve a tool that says why.")
    ] = False,
) -> None:
    """Bridge MCP over stdin and stdout, for agents that start their servers as programs.

    Without --url, opens a session on the running daemon and closes it at end of input.
    """
    from codesdk.cli.session.stdio_bridge import run

    run(
        url=url,
        token=token,
        workspace=workspace,
        mode=mode,
        rules=rules,
        data_dir=data_dir,
        wait_s=wait,
        git_depth=git_depth if git else None,
        tell_agent=tell_agent,
    )


@app.command("connect")
def connect_client(
    client: Annotated[ClientKind, typer.Argument(help="The client to configure.")],
    *,
    url: Annotated[str | None, typer.Option("--url", help="MCP URL of a session.", envvar=URL_VARIABLE)] = None,
    token: Annotated[str | None, typer.Option("--token", help="The session's token.", envvar=TOKEN_VARIABLE)] = None,
    wait: Annotated[int | None, typer.Option("--wait", help="Maximum seconds per answer.", min=1, max=604800)] = None,
    workspace: Workspace = None,
    write: Annotated[bool, typer.Option("--write", help="Merge the entry into the client's file.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", parser=parse_path, metavar="PATH", help="Use another file.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Verify that the client sees the session's tools, and has no others.")
    ] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail if the client would keep built-in tools of its own.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Print the configuration that connects an agent's client to a session, or write it.

    Without --url, uses the only open session of the running daemon; if there is none or several, or with --workspace,
    opens a new one and leaves it open.
    """
    from codesdk.cli.client_config import connect as connecting

    connecting.run(
        client,
        url=url,
        token=token,
        wait_s=wait,
        workspace=workspace,
        write=write,
        file=file,
        check=check,
        strict=strict,
        data_dir=data_dir,
        as_json_answer=json,
    )


@sessions_app.command("open")
def open_session(
    *,
    workspace: Workspace = None,
    git: Git = False,
    git_depth: GitDepth = DEPTH,
    mode: Mode = PermissionMode.AUTO,
    profile: ProfileName = "default",
    rules: SessionRules = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Record changes of workspace files as events (sandbox.files_changed).")
    ] = False,
    from_session: Annotated[
        str | None,
        typer.Option("--from", metavar="SESSION", help="Ended session whose last snapshot becomes the workspace."),
    ] = None,
    snapshots: Annotated[
        bool | None,
        typer.Option(
            "--snapshots/--no-snapshots", help="Take workspace snapshots, for --from. (default: CODESDK_SNAPSHOTS)"
        ),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Open a session and print its MCP URL and token."""
    from codesdk.cli.session.manage import run_open

    run_open(
        workspace=workspace,
        git_depth=git_depth if git else None,
        mode=mode,
        profile=profile,
        rules=rules,
        watch=watch,
        from_session=from_session,
        snapshots=snapshots,
        data_dir=data_dir,
        as_json=json,
    )


@sessions_app.command("list")
def list_sessions(*, data_dir: DataDir = None, json: Json = False) -> None:
    """List sessions, newest first."""
    from codesdk.cli.session.manage import show

    show(data_dir=data_dir, as_json=json)


@sessions_app.command("close")
def close_session(session: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """Close a session: cancels its calls, removes its sandbox, revokes its token."""
    from codesdk.cli.session.manage import run_close

    run_close(session, data_dir=data_dir, as_json=json)


Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait for the change.", min=0, max=600)]


@sessions_app.command("stop")
def stop_session(session: str, *, wait: Wait = 60.0, data_dir: DataDir = None, json: Json = False) -> None:
    """Stop a session's sandbox: frees its memory, keeps its workspace. The next call starts it again."""
    from codesdk.cli.session.manage import run_sandbox_change

    run_sandbox_change(session, "stop", wait_s=wait, data_dir=data_dir, as_json=json)


@sessions_app.command("start")
def start_session(session: str, *, wait: Wait = 60.0, data_dir: DataDir = None, json: Json = False) -> None:
    """Start a stopped sandbox now instead of with the next call."""
    from codesdk.cli.session.manage import run_sandbox_change

    run_sandbox_change(session, "start", wait_s=wait, data_dir=data_dir, as_json=json)


app.command("transcript")(transcript)
