"""`codesdk tools …`: options and help. Only `call` and `test` need a running daemon."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for the parsers

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json, Mode, parse_path
from codesdk.domain.decisions import Classification, PermissionMode

tools_app = typer.Typer(help="Write, check, inspect and call tools.", no_args_is_help=True)


class ToolFormat(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


Tools = Annotated[
    Path | None,
    typer.Option(
        "--tools", parser=parse_path, metavar="DIR", help="Directory of manifests.", envvar="CODESDK_REGISTRY_DIR"
    ),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Tool name, with dots or underscores.")]
SourceName = Annotated[str, typer.Argument(metavar="SOURCE", help="The `name` in a manifest of `kind: mcp`.")]
OfTenant = Annotated[
    str | None, typer.Option("--tenant", metavar="ID", help="Tenant whose secrets are sent to a remote server.")
]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="ID", help="Include this tenant's tools (CODESDK_TENANT_TOOLS_DIR)."),
]
Policies = Annotated[
    Path | None,
    typer.Option(
        "--policies", parser=parse_path, metavar="DIR", help="Policy bundle to use.", envvar="CODESDK_POLICIES_DIR"
    ),
]
ProfileName = Annotated[str, typer.Option("--profile", help="Resource limits of the session's sandbox.")]


@tools_app.command()
def lint(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH...]", help="Files or directories (default: those in force).")
    ] = None,
    *,
    tools: Tools = None,
    own: Annotated[
        bool, typer.Option("--own", help="The manifests are a tenant's, on top of the installation's.")
    ] = False,
    report: Annotated[
        ToolFormat, typer.Option("--format", help="Report format; github writes annotations.")
    ] = ToolFormat.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
) -> int:
    """Check manifests for errors and questionable settings; exit 65 if one can't be used."""
    from codesdk.cli.tools.linting import run_lint

    return run_lint(paths or [], tools, report, own=own, strict=strict)


@tools_app.command("pin")
def pin_source(
    source: SourceName, *, tools: Tools = None, tenant: OfTenant = None, data_dir: DataDir = None, json: Json = False
) -> int:
    """Start an MCP server in a sandbox and accept its tools, except those with suspicious text; exit 1 if any are skipped."""
    from codesdk.cli.tools.source_pins import pin_source

    return pin_source(source, tools, tenant, data_dir, as_json=json)


@tools_app.command("diff")
def diff_source(
    source: SourceName, *, tools: Tools = None, tenant: OfTenant = None, data_dir: DataDir = None, json: Json = False
) -> int:
    """Start an MCP server in a sandbox and show how its tools differ from the accepted ones; exit 1 if they do."""
    from codesdk.cli.tools.source_pins import diff_source

    return diff_source(source, tools, tenant, data_dir, as_json=json)


@tools_app.command("accept")
def accept_tools(
    source: SourceName,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOOL...]", help="Tool names as the server has them.")
    ] = None,
    *,
    everything: Annotated[
        bool, typer.Option("--all", help="Accept everything the server offers, including suspicious text.")
    ] = False,
    tools: Tools = None,
    tenant: OfTenant = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Accept an MCP server's current tools. Tools that it no longer has are removed."""
    from codesdk.cli.tools.source_pins import accept_tools

    return accept_tools(source, names or [], tools, tenant, data_dir, everything=everything, as_json=json)


@tools_app.command("list")
def list_tools(
    *,
    tools: Tools = None,
    tenant: Tenant = None,
    policies: Policies = None,
    mode: Mode = PermissionMode.AUTO,
    json: Json = False,
) -> None:
    """List tools with their class, and whether policy allows, asks, denies, or decides by input."""
    from codesdk.cli.tools.describe import show_all

    show_all(tools, tenant, policies, mode=mode, as_json=json)


@tools_app.command()
def show(
    name: Name,
    *,
    tools: Tools = None,
    tenant: Tenant = None,
    role: Annotated[list[str] | None, typer.Option("--role", help="Evaluate policy for this role; repeatable.")] = None,
    policies: Policies = None,
    json: Json = False,
) -> None:
    """Show a tool: schemas, hash, class, command, examples, policy."""
    from codesdk.cli.tools.describe import show_one

    show_one(name, tools, tenant, policies, roles=tuple(role or ()), as_json=json)


@tools_app.command()
def call(
    name: Name,
    given: Annotated[str, typer.Argument(metavar="[INPUT]", help="Input as JSON; - for stdin.")] = "{}",
    *,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", parser=parse_path, metavar="PATH", help="Directory to copy into the workspace."),
    ] = None,
    mode: Mode = PermissionMode.AUTO,
    profile: ProfileName = "default",
    local: Annotated[
        bool,
        typer.Option("--local", help="Run it here in a temporary sandbox: no daemon, policy, network or record."),
    ] = False,
    tools: Tools = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Make one call in a new session on the running daemon, with policy, approval and record as for an agent."""
    from codesdk.cli.tools.mcp_calls import read_input, run_call

    if local:
        from codesdk.cli.tools.local_call import call_locally

        return call_locally(name, read_input(given), tools, workspace, profile=profile, as_json=json)
    return run_call(name, given, workspace, mode=mode, profile=profile, data_dir=data_dir, as_json=json)


@tools_app.command("test")
def try_examples(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME...]", help="Tools (default: all).")] = None,
    *,
    tools: Tools = None,
    tenant: Tenant = None,
    mode: Mode = PermissionMode.AUTO,
    profile: ProfileName = "default",
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Run the manifests' examples on the running daemon, each in a new session with the example's files."""
    from codesdk.cli.tools.mcp_calls import run_examples

    return run_examples(names or [], tools, tenant, mode=mode, profile=profile, data_dir=data_dir, as_json=json)


@tools_app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Dotted name: word.count")],
    *,
    command: Annotated[
        str, typer.Option("--command", help="Command; `{path}` inserts an input, `{n:integer}` one with a type.")
    ],
    description: Annotated[str | None, typer.Option("--description", help="Description for the model.")] = None,
    classification: Annotated[
        Classification, typer.Option("--class", help="Classification: what harm it can do.")
    ] = Classification.DANGEROUS,
    stdin: Annotated[bool, typer.Option("--stdin", help="The command reads text from stdin.")] = False,
    mcp: Annotated[
        str | None,
        typer.Option(
            "--mcp", metavar="PACKAGE", help="Package of an MCP server: pypi:NAME==VERSION or npm:NAME@VERSION."
        ),
    ] = None,
    sees_workspace: Annotated[
        bool,
        typer.Option(
            "--sees-workspace", help="With --mcp: the server can read the session's files and has no network."
        ),
    ] = False,
    directory: Annotated[
        Path, typer.Option("--to", parser=parse_path, metavar="DIR", help="Output directory.")
    ] = Path(),
) -> int:
    """Write the manifest of a command in the sandbox image, or of an MCP server. Overwrites nothing."""
    if mcp is not None:
        from codesdk.cli.tools.source_scaffold import create_source_manifest

        return create_source_manifest(
            name,
            mcp,
            command,
            classification,
            description=description,
            sees_workspace=sees_workspace,
            directory=directory,
        )
    from codesdk.cli.tools.scaffold import create_manifest

    return create_manifest(name, command, description, classification, stdin=stdin, directory=directory)
