"""`codesdk tools …`: what authors of tools work with. Only `call` and `test` need a running daemon."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for the parsers

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.commands.options import DataDir, Json, parse_path
from codesdk.domain.decisions import Classification, PermissionMode

tools_app = typer.Typer(help="Write, check, look at and call tools.", no_args_is_help=True)


class ToolFormat(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


Tools = Annotated[
    Path | None,
    typer.Option("--tools", parser=parse_path, metavar="DIR", help="The manifests.", envvar="CODESDK_REGISTRY_DIR"),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Of the tool, with dots or underscores.")]
SourceName = Annotated[str, typer.Argument(metavar="SOURCE", help="The `name` in a manifest of `kind: mcp`.")]
OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="ID", help="Whose secrets a remote server is shown.")]
Tenant = Annotated[
    str | None,
    typer.Option("--tenant", metavar="ID", help="With the tools of this tenant (CODESDK_TENANT_TOOLS_DIR)."),
]
Policies = Annotated[
    Path | None,
    typer.Option("--policies", parser=parse_path, metavar="DIR", help="By this bundle.", envvar="CODESDK_POLICIES_DIR"),
]
Mode = Annotated[PermissionMode, typer.Option("--mode", help="How eager the session is to ask people.")]
ProfileName = Annotated[str, typer.Option("--profile", help="What the session's sandbox may use.")]


@tools_app.command()
def lint(
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH...]", help="Files or directories (default: those in force).")
    ] = None,
    *,
    tools: Tools = None,
    own: Annotated[bool, typer.Option("--own", help="They are a tenant's, on top of the installation's.")] = False,
    report: Annotated[
        ToolFormat, typer.Option("--format", help="text, json, or github (annotations).")
    ] = ToolFormat.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 on warnings too.")] = False,
) -> int:
    """Find what is wrong in manifests, and what their author should look at; 65 where one cannot be used."""
    from codesdk.cli.tools.linting import run_lint

    return run_lint(paths or [], tools, report, own=own, strict=strict)


@tools_app.command("pin")
def pin_source(
    source: SourceName, *, tools: Tools = None, tenant: OfTenant = None, data_dir: DataDir = None, json: Json = False
) -> int:
    """Start an MCP server in a sandbox and accept its tools, but for those in which something is hidden; 1 where there are."""
    from codesdk.cli.tools.source_pins import pin_source

    return pin_source(source, tools, tenant, data_dir, as_json=json)


@tools_app.command("diff")
def diff_source(
    source: SourceName, *, tools: Tools = None, tenant: OfTenant = None, data_dir: DataDir = None, json: Json = False
) -> int:
    """Start an MCP server in a sandbox and show what it says otherwise than it was accepted; 1 where anything is."""
    from codesdk.cli.tools.source_pins import diff_source

    return diff_source(source, tools, tenant, data_dir, as_json=json)


@tools_app.command("accept")
def accept_tools(
    source: SourceName,
    names: Annotated[list[str] | None, typer.Argument(metavar="[TOOL...]", help="By the server's own names.")] = None,
    *,
    everything: Annotated[bool, typer.Option("--all", help="All that it offers now, whatever they say.")] = False,
    tools: Tools = None,
    tenant: OfTenant = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Accept tools of an MCP server as it has them now. What it has no more is taken off."""
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
    """Every tool, with its class and whether its calls are on, asked about, off, or depend on their input."""
    from codesdk.cli.tools.describe import show_all

    show_all(tools, tenant, policies, mode=mode, as_json=json)


@tools_app.command()
def show(
    name: Name,
    *,
    tools: Tools = None,
    tenant: Tenant = None,
    role: Annotated[list[str] | None, typer.Option("--role", help="What policy says to this role; may repeat.")] = None,
    policies: Policies = None,
    json: Json = False,
) -> None:
    """One tool: schemas, hash, class, command, examples, and what policy says of it."""
    from codesdk.cli.tools.describe import show_one

    show_one(name, tools, tenant, policies, roles=tuple(role or ()), as_json=json)


@tools_app.command()
def call(
    name: Name,
    given: Annotated[str, typer.Argument(metavar="[INPUT]", help="As JSON; - is standard input.")] = "{}",
    *,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", parser=parse_path, metavar="PATH", help="Files that the sandbox starts with."),
    ] = None,
    mode: Mode = PermissionMode.AUTO,
    profile: ProfileName = "default",
    local: Annotated[
        bool,
        typer.Option("--local", help="Here, in a sandbox that is thrown away: no daemon, policy, network or record."),
    ] = False,
    tools: Tools = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Make one call in a session of its own on the running daemon: policy, approval and record as for an agent."""
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
    """Run the examples of manifests on the running daemon, each in a session with the example's files."""
    from codesdk.cli.tools.mcp_calls import run_examples

    return run_examples(names or [], tools, tenant, mode=mode, profile=profile, data_dir=data_dir, as_json=json)


@tools_app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Words with dots: word.count")],
    *,
    command: Annotated[
        str, typer.Option("--command", help="Words; `{path}` is one from the input, `{n:integer}` with its type.")
    ],
    description: Annotated[str | None, typer.Option("--description", help="For the model that calls it.")] = None,
    classification: Annotated[
        Classification, typer.Option("--class", help="What harm it can do.")
    ] = Classification.DANGEROUS,
    stdin: Annotated[bool, typer.Option("--stdin", help="It reads text from standard input.")] = False,
    mcp: Annotated[
        str | None,
        typer.Option("--mcp", metavar="PACKAGE", help="An MCP server's: pypi:NAME==VERSION or npm:NAME@VERSION."),
    ] = None,
    sees_workspace: Annotated[
        bool, typer.Option("--sees-workspace", help="With --mcp: it reads the session's files, and has no network.")
    ] = False,
    directory: Annotated[Path, typer.Option("--to", parser=parse_path, metavar="DIR", help="Where to.")] = Path(),
) -> int:
    """Write the manifest of a command that the sandbox's image has, with an example, or of an MCP server. Nothing is overwritten."""
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
