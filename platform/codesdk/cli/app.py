"""The command tree: options and help. Each command's work is in a module of its own, imported when it is run."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for everything that `codesdk up` needs

from __future__ import annotations

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
from codesdk.cli.commands.options import DataDir, Json, parse_path
from codesdk.cli.commands.sandbox import sandbox_app
from codesdk.cli.commands.sandbox_kind import SandboxKind
from codesdk.cli.commands.schema import schema_app
from codesdk.cli.commands.tenancy import groups_app, keys_app, tenants_app
from codesdk.cli.commands.webhooks import webhooks_app
from codesdk.cli.policy import policy_app
from codesdk.cli.tools import tools_app
from codesdk.domain.decisions import PermissionMode

app = typer.Typer(
    name="codesdk",
    help="Runs the tool calls of AI agents in Docker sandboxes, under a policy that people can read.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
sessions_app = typer.Typer(help="Sessions of the running daemon.", no_args_is_help=True)
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
        help="Directory of the policy bundle.",
        envvar="CODESDK_POLICIES_DIR",
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", help="Port of API and MCP host; 0 takes any free one.", min=0, max=65535, envvar="CODESDK_PORT"
    ),
]
Mode = Annotated[PermissionMode, typer.Option("--mode", help="How eager the session is to ask people.")]
Sandbox = Annotated[
    SandboxKind | None,
    typer.Option(
        "--sandbox",
        help="Containers; or, where no engine can run, processes of this machine behind bubblewrap (local), which protects "
        "it less, or without any wall (plain). "
        "(default: docker, or what CODESDK_LOCAL_SANDBOX says)",
    ),
]
ProfileName = Annotated[
    str,
    typer.Option(
        "--profile", help="What the session's sandbox may use: a file of sandbox-images/profiles, without .yaml."
    ),
]
Workspace = Annotated[
    Path | None,
    typer.Option(
        "--workspace",
        parser=parse_path,
        metavar="PATH",
        help="Directory whose files the sandbox starts with (a copy; .gitignore holds).",
    ),
]
SessionRules = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        parser=parse_path,
        metavar="FILE",
        help="Rules of the session's own, as in a policy file; they can only ask or deny.",
    ),
]


def _print_version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


@app.callback()
def global_options(
    *,
    _version: Annotated[
        bool, typer.Option("--version", help="Say the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Holds what may stand before any command; its help is the app's."""


@app.command()
def version(*, json: Json = False) -> None:
    """Say the version."""
    from codesdk.cli.installation.version import show_version

    show_version(as_json=json)


@app.command("init")
def init_(
    *,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Where there is an operator: make another key, and revoke the old.")
    ] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Make the data directory, its tenant and the operator's key, which is printed this once.

    `codesdk up` does not need it: it makes a key of its own for the commands on its machine.
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
    mode: Mode = PermissionMode.AUTO,
    profile: ProfileName = "default",
    rules: SessionRules = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """Run API, MCP host and worker in the foreground, and open a session for your agent.

    Ctrl-C stops everything that was started and closes every session; their logs stay.
    """
    from codesdk.cli.stack.up import run

    run(
        data_dir=data_dir,
        policies=policies,
        port=port,
        workspace=workspace,
        mode=mode,
        profile=profile,
        rules=rules,
        sandbox=sandbox,
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
    """Drive one agent's calls through everything, check the record, and stop all that was started."""
    from codesdk.cli.demo.run import run

    run(data_dir=data_dir, policies=policies, sandbox=sandbox, as_json=json)


@app.command()
def migrate(*, data_dir: DataDir = None, json: Json = False) -> None:
    """Bring the database to this version's schema, and end. `up` does it by itself."""
    from codesdk.cli.installation.migrate import run

    run(data_dir=data_dir, as_json=json)


@app.command()
def doctor(*, data_dir: DataDir = None, json: Json = False) -> int:
    """Look at everything that a run needs, and say how to mend it. Changes nothing."""
    from codesdk.cli.installation.doctor import run

    return run(data_dir=data_dir, as_json=json)


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", parser=parse_path, help="A new directory.")],
    *,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Copy database, artifacts and keys, consistently, also while everything runs."""
    from codesdk.cli.installation.backup import create_backup

    return create_backup(target, data_dir=data_dir, as_json=json)


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(metavar="SRC", parser=parse_path, help="What `codesdk backup` made.")],
    *,
    data_dir: Annotated[
        Path, typer.Option("--data-dir", parser=parse_path, metavar="PATH", help="A new or empty directory.")
    ],
    json: Json = False,
) -> None:
    """Make a backup into an installation of its own: another instance, with no open session."""
    from codesdk.cli.installation.backup import restore_backup

    restore_backup(source, data_dir=data_dir, as_json=json)


@app.command()
def mcp(
    *,
    url: Annotated[str | None, typer.Option("--url", help="MCP URL of a session.", envvar=URL_VARIABLE)] = None,
    token: Annotated[str | None, typer.Option("--token", help="Its token.", envvar=TOKEN_VARIABLE)] = None,
    workspace: Workspace = None,
    mode: Mode = PermissionMode.AUTO,
    rules: SessionRules = None,
    data_dir: DataDir = None,
    wait: Annotated[
        int | None,
        typer.Option("--wait", help="Seconds to an answer.", envvar=WAIT_VARIABLE, min=1, max=604800),
    ] = None,
) -> None:
    """Speak MCP on stdin and stdout, for agents that start their servers as programs.

    Without --url it opens a session of its own on the running daemon, and closes it at the end of input.
    """
    from codesdk.cli.session.stdio_bridge import run

    run(url=url, token=token, workspace=workspace, mode=mode, rules=rules, data_dir=data_dir, wait_s=wait)


@app.command("connect")
def connect_client(
    client: Annotated[ClientKind, typer.Argument(help="Whose configuration.")],
    *,
    url: Annotated[str | None, typer.Option("--url", help="MCP URL of a session.", envvar=URL_VARIABLE)] = None,
    token: Annotated[str | None, typer.Option("--token", help="Its token.", envvar=TOKEN_VARIABLE)] = None,
    wait: Annotated[int | None, typer.Option("--wait", help="Seconds to an answer.", min=1, max=604800)] = None,
    workspace: Workspace = None,
    write: Annotated[bool, typer.Option("--write", help="Merge it into the client's file.")] = False,
    file: Annotated[
        Path | None, typer.Option("--file", parser=parse_path, metavar="PATH", help="Another file.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="See whether the tools are seen.")] = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Print the configuration that connects an agent's client to a session, or write it.

    Without --url it opens a session on the running daemon, which stays open.
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
        data_dir=data_dir,
        as_json_answer=json,
    )


@sessions_app.command("open")
def open_session(
    *,
    workspace: Workspace = None,
    mode: Mode = PermissionMode.AUTO,
    profile: ProfileName = "default",
    rules: SessionRules = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Make changes of its workspace's files events (sandbox.files_changed).")
    ] = False,
    from_session: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="SESSION", help="An ended session, whose last snapshot the workspace starts from."
        ),
    ] = None,
    snapshots: Annotated[
        bool | None,
        typer.Option(
            "--snapshots/--no-snapshots", help="Keep its workspace as it goes, for --from. (default: as set up)"
        ),
    ] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Open one, and print its MCP URL and token."""
    from codesdk.cli.session.manage import run_open

    run_open(
        workspace=workspace,
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
    """All of them, newest first."""
    from codesdk.cli.session.manage import show

    show(data_dir=data_dir, as_json=json)


@sessions_app.command("close")
def close_session(session: str, *, data_dir: DataDir = None, json: Json = False) -> None:
    """End one: its waiting calls, its sandbox, its token."""
    from codesdk.cli.session.manage import run_close

    run_close(session, data_dir=data_dir, as_json=json)


Wait = Annotated[float, typer.Option("--wait", help="Seconds to wait until it is so.", min=0, max=600)]


@sessions_app.command("stop")
def stop_session(session: str, *, wait: Wait = 60.0, data_dir: DataDir = None, json: Json = False) -> None:
    """Stop its sandbox: processes end, memory is free, the workspace stays; the next call starts it again."""
    from codesdk.cli.session.manage import run_sandbox_change

    run_sandbox_change(session, "stop", wait_s=wait, data_dir=data_dir, as_json=json)


@sessions_app.command("start")
def start_session(session: str, *, wait: Wait = 60.0, data_dir: DataDir = None, json: Json = False) -> None:
    """Start a stopped sandbox again now, and not with the next call."""
    from codesdk.cli.session.manage import run_sandbox_change

    run_sandbox_change(session, "start", wait_s=wait, data_dir=data_dir, as_json=json)


app.command("transcript")(transcript)
