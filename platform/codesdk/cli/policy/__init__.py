"""`codesdk policy …`: options and help. Only versions, promotion and shadows need a running daemon."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for the parsers

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from codesdk.cli.commands.options import Json

policy_app = typer.Typer(help="Write, test and compare policy bundles.", no_args_is_help=True)
shadow_app = typer.Typer(help="Evaluate a bundle on live calls without enforcing it.", no_args_is_help=True)
policy_app.add_typer(shadow_app, name="shadow")


class Format(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


Policies = Annotated[
    Path | None,
    typer.Option("--policies", metavar="DIR", help="Directory of the policy bundle.", envvar="CODESDK_POLICIES_DIR"),
]
Bundle = Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The bundle (default: the one in force).")]
Report = Annotated[Format, typer.Option("--format", help="Report format; github writes annotations.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", metavar="PATH", help="Installation whose recorded calls to use.", envvar="CODESDK_DATA_DIR"
    ),
]
Days = Annotated[float, typer.Option("--days", min=0.0, help="How many days of recorded calls to use.")]
Calls = Annotated[
    Path | None,
    typer.Option("--calls", metavar="FILE", help="Calls as for `decide`, one JSON object per line; - for stdin."),
]
Accept = Annotated[bool, typer.Option("--accept-allows", help="Exit with 0 even if calls are newly allowed.")]


@policy_app.command()
def lint(
    directory: Bundle = None,
    *,
    policies: Policies = None,
    report: Report = Format.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on warnings too.")] = False,
) -> int:
    """Check a bundle for errors and questionable rules."""
    from codesdk.cli.policy.lint_and_test import run_lint

    return run_lint(directory or policies, report, strict=strict)


@policy_app.command("test")
def try_tests(
    directory: Bundle = None,
    *,
    policies: Policies = None,
    report: Report = Format.TEXT,
    mutants: Annotated[
        bool,
        typer.Option("--mutants", help="Mutation testing: change each rule and report changes that no test notices."),
    ] = False,
    cover: Annotated[bool, typer.Option("--cover", help="Exit with 1 if no test reaches a rule.")] = False,
) -> int:
    """Run the bundle's tests (its folder `tests`) and report which rules they reach."""
    from codesdk.cli.policy.lint_and_test import run_tests

    return run_tests(directory or policies, report, mutants=mutants, cover=cover)


@policy_app.command()
def decide(*, policies: Policies = None) -> int:
    """Read one call per line as JSON on stdin; write one decision per line.

    A call: {"tool": "workspace.exec", "input": {"command": "git status"}}, optionally with "principal" (an id, or
    {"id", "roles"}), "mode" (ask, auto, yolo), "session" ({"id", "tenant", "runtime", "labels"}).
    """
    from codesdk.cli.policy.decisions import decide_lines

    return decide_lines(policies)


@policy_app.command()
def explain(
    call: Annotated[str | None, typer.Argument(help="A call as JSON, as for `decide`.")] = None,
    *,
    command: Annotated[str | None, typer.Option("--command", "-c", help="A shell command instead of a call.")] = None,
    policies: Policies = None,
    json: Json = False,
) -> int:
    """Explain the decision on one call, with the result of every rule."""
    from codesdk.cli.policy.decisions import run_explain

    return run_explain(call, command, policies, as_json=json)


@policy_app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A bundle.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another bundle.")],
    *,
    calls: Calls = None,
    data_dir: DataDir = None,
    days: Days = 30.0,
    report: Report = Format.TEXT,
    accept_allows: Accept = False,
) -> int:
    """Evaluate recorded calls under two bundles; exit 1 if B allows a call that A did not."""
    from codesdk.cli.policy.comparisons import compare

    return compare(before, after, calls, data_dir, days=days, report=report, accept=accept_allows)


@policy_app.command()
def replay(
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="The candidate bundle.")],
    *,
    policies: Policies = None,
    data_dir: DataDir = None,
    days: Days = 7.0,
    report: Report = Format.TEXT,
    accept_allows: Accept = False,
) -> int:
    """Evaluate this installation's recent calls under a candidate and compare with the bundle in force."""
    from codesdk.cli.policy.comparisons import compare

    return compare(policies, candidate, None, data_dir, days=days, report=report, accept=accept_allows)


@policy_app.command()
def suggest(
    call: Annotated[str, typer.Argument(help="Id of a recorded call, or a call as JSON.")],
    *,
    policies: Policies = None,
    data_dir: DataDir = None,
) -> int:
    """Suggest a rule that allows calls like this one, and a test for it."""
    from codesdk.cli.policy.suggestions import print_suggestion

    return print_suggestion(call, policies, data_dir)


@policy_app.command()
def schema() -> int:
    """Print the JSON Schema of policy files, for editors."""
    from codesdk.cli.policy.formatting import print_schema

    return print_schema()


@policy_app.command()
def fmt(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files or directories.")],
    *,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 if a file would change.")] = False,
) -> int:
    """Format policy files. Comments and meaning stay."""
    from codesdk.cli.policy.formatting import format_files

    return format_files(paths, check=check)


Tenant = Annotated[bool, typer.Option("--tenant", help="The rules of your own tenant instead of the shared ones.")]
Wanted = Annotated[str, typer.Argument(metavar="DIR|HASH", help="A bundle directory, or a version's hash.")]
Comment = Annotated[str, typer.Option("--comment", "-m", help="Comment for the record.")]


@policy_app.command()
def versions(*, tenant: Tenant = False, data_dir: DataDir = None, json: Json = False) -> int:
    """List policy versions and who promoted them."""
    from codesdk.cli.policy.versions import list_versions

    return list_versions(data_dir, tenant=tenant, as_json=json)


@policy_app.command()
def promote(
    wanted: Wanted, *, comment: Comment = "", tenant: Tenant = False, data_dir: DataDir = None, json: Json = False
) -> int:
    """Put a bundle that passes its own tests into force, instead of the files."""
    from codesdk.cli.policy.versions import promote as put

    return put(wanted, comment, data_dir, tenant=tenant, as_json=json)


@policy_app.command()
def rollback(
    *,
    comment: Comment = "",
    to_files: Annotated[
        bool, typer.Option("--to-files", help="Put the policy directory's files back into force.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Go back even if that version fails its own tests.")] = False,
    tenant: Tenant = False,
    data_dir: DataDir = None,
    json: Json = False,
) -> int:
    """Go back to the version that was in force before."""
    from codesdk.cli.policy.versions import roll_back

    return roll_back(comment, data_dir, tenant=tenant, to_files=to_files, force=force, as_json=json)


@shadow_app.command("start")
def start_shadow(wanted: Wanted, *, tenant: Tenant = False, data_dir: DataDir = None, json: Json = False) -> int:
    """Start a shadow: evaluate a bundle on live calls. Replaces a running shadow."""
    from codesdk.cli.policy.versions import start_shadow as start

    return start(wanted, data_dir, tenant=tenant, as_json=json)


@shadow_app.command("status")
def show_shadow(*, tenant: Tenant = False, data_dir: DataDir = None, json: Json = False) -> int:
    """Show how the shadow bundle decided live calls so far."""
    from codesdk.cli.policy.versions import shadow_status

    return shadow_status(data_dir, tenant=tenant, as_json=json)


@shadow_app.command("stop")
def stop_shadow(*, tenant: Tenant = False, data_dir: DataDir = None, json: Json = False) -> int:
    """Stop the shadow and show how it decided."""
    from codesdk.cli.policy.versions import shadow_status

    return shadow_status(data_dir, tenant=tenant, as_json=json, end=True)
