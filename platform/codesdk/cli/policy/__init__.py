"""`codesdk policy …`: what policy authors work with. Only versions, promotion and shadows need a running daemon."""
# ruff: noqa: PLC0415 - `codesdk version` must not wait for the parsers

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

policy_app = typer.Typer(help="Write, test and compare policy bundles.", no_args_is_help=True)
shadow_app = typer.Typer(help="Try a bundle on live calls without obeying it.", no_args_is_help=True)
policy_app.add_typer(shadow_app, name="shadow")


class Format(StrEnum):
    """How a report is written."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"
    GITHUB = "github"


Policies = Annotated[
    Path | None,
    typer.Option("--policies", metavar="DIR", help="The policy bundle.", envvar="CODESDK_POLICIES_DIR"),
]
Bundle = Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The bundle (default: the one in force).")]
Report = Annotated[Format, typer.Option("--format", help="text, json, junit, or github (annotations).")]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="PATH", help="Whose calls.", envvar="CODESDK_DATA_DIR")
]
Days = Annotated[float, typer.Option("--days", min=0.0, help="How far back calls are taken from the record.")]
Calls = Annotated[
    Path | None,
    typer.Option("--calls", metavar="FILE", help="Calls as for `decide`, one JSON object a line; - is standard input."),
]
Accept = Annotated[bool, typer.Option("--accept-allows", help="End with 0 where calls are newly allowed, too.")]


@policy_app.command()
def lint(
    directory: Bundle = None,
    *,
    policies: Policies = None,
    report: Report = Format.TEXT,
    strict: Annotated[bool, typer.Option("--strict", help="End with 1 on warnings too.")] = False,
) -> int:
    """Find what is wrong in a bundle, and what its author should look at."""
    from codesdk.cli.policy.lint_and_test import run_lint

    return run_lint(directory or policies, report, strict=strict)


@policy_app.command("test")
def try_tests(
    directory: Bundle = None,
    *,
    policies: Policies = None,
    report: Report = Format.TEXT,
    mutants: Annotated[
        bool, typer.Option("--mutants", help="Damage each rule in every simple way; the tests must notice.")
    ] = False,
    cover: Annotated[bool, typer.Option("--cover", help="End with 1 where a rule matches in no test.")] = False,
) -> int:
    """Run the bundle's tests (its folder `tests`), and say which rules they reach."""
    from codesdk.cli.policy.lint_and_test import run_tests

    return run_tests(directory or policies, report, mutants=mutants, cover=cover)


@policy_app.command()
def decide(*, policies: Policies = None) -> int:
    """Read one call a line as JSON on standard input; write one decision a line.

    A call: {"tool": "workspace.exec", "input": {"command": "git status"}}, and where it matters "principal" (an id, or
    {"id", "roles"}), "mode" (ask, auto, yolo), "session" ({"id", "tenant", "runtime", "labels"}).
    """
    from codesdk.cli.policy.decisions import decide_lines

    return decide_lines(policies)


@policy_app.command()
def explain(
    call: Annotated[str | None, typer.Argument(help="A call as JSON, as for `decide`.")] = None,
    *,
    command: Annotated[str | None, typer.Option("--command", "-c", help="A shell line, in place of a call.")] = None,
    policies: Policies = None,
    json: Annotated[bool, typer.Option("--json", help="Answer in JSON.")] = False,
) -> int:
    """Say what would be decided of one call, with every rule's part in it."""
    from codesdk.cli.policy.decisions import run_explain

    return run_explain(call, command, policies, as_json=json)


@policy_app.command()
def diff(
    before: Annotated[Path, typer.Argument(metavar="A", help="A bundle.")],
    after: Annotated[Path, typer.Argument(metavar="B", help="Another.")],
    *,
    calls: Calls = None,
    data_dir: DataDir = None,
    days: Days = 30.0,
    report: Report = Format.TEXT,
    accept_allows: Accept = False,
) -> int:
    """Judge recorded calls under two bundles; exit code 1 where B allows what A did not."""
    from codesdk.cli.policy.comparisons import compare

    return compare(before, after, calls, data_dir, days=days, report=report, accept=accept_allows)


@policy_app.command()
def replay(
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="The bundle that is to come.")],
    *,
    policies: Policies = None,
    data_dir: DataDir = None,
    days: Days = 7.0,
    report: Report = Format.TEXT,
    accept_allows: Accept = False,
) -> int:
    """Judge the last days' calls of this installation under a candidate, against the bundle in force."""
    from codesdk.cli.policy.comparisons import compare

    return compare(policies, candidate, None, data_dir, days=days, report=report, accept=accept_allows)


@policy_app.command()
def suggest(
    call: Annotated[str, typer.Argument(help="Id of a recorded call, or a call as JSON.")],
    *,
    policies: Policies = None,
    data_dir: DataDir = None,
) -> int:
    """Write a rule that allows calls like this one, and its test."""
    from codesdk.cli.policy.suggestions import print_suggestion

    return print_suggestion(call, policies, data_dir)


@policy_app.command()
def schema() -> int:
    """Print the JSON Schema of policy files, for editors."""
    from codesdk.cli.policy.formatting import print_schema

    return print_schema()


@policy_app.command()
def fmt(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Files, or directories of them.")],
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit code 1 where a file would change.")
    ] = False,
) -> int:
    """Lay policy files out in one way. Comments stay, and what they say does not change."""
    from codesdk.cli.policy.formatting import format_files

    return format_files(paths, check=check)


Tenant = Annotated[bool, typer.Option("--tenant", help="The rules of your own tenant, not everybody's.")]
Wanted = Annotated[str, typer.Argument(metavar="DIR|HASH", help="A bundle, or a version by its hash.")]
Comment = Annotated[str, typer.Option("--comment", "-m", help="Kept in the record.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]


@policy_app.command()
def versions(*, tenant: Tenant = False, data_dir: DataDir = None, json: AsJson = False) -> int:
    """Show the versions that were in force, and who put which there."""
    from codesdk.cli.policy.versions import list_versions

    return list_versions(data_dir, tenant=tenant, as_json=json)


@policy_app.command()
def promote(
    wanted: Wanted, *, comment: Comment = "", tenant: Tenant = False, data_dir: DataDir = None, json: AsJson = False
) -> int:
    """Put a bundle into force that passes its own tests, in place of the files."""
    from codesdk.cli.policy.versions import promote as put

    return put(wanted, comment, data_dir, tenant=tenant, as_json=json)


@policy_app.command()
def rollback(
    *,
    comment: Comment = "",
    to_files: Annotated[
        bool, typer.Option("--to-files", help="What the policy directory says is in force again.")
    ] = False,
    tenant: Tenant = False,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> int:
    """Put into force what was before."""
    from codesdk.cli.policy.versions import roll_back

    return roll_back(comment, data_dir, tenant=tenant, to_files=to_files, as_json=json)


@shadow_app.command("start")
def start_shadow(wanted: Wanted, *, tenant: Tenant = False, data_dir: DataDir = None, json: AsJson = False) -> int:
    """Try a bundle beside the one in force, in place of any that is tried now."""
    from codesdk.cli.policy.versions import start_shadow as start

    return start(wanted, data_dir, tenant=tenant, as_json=json)


@shadow_app.command("status")
def show_shadow(*, tenant: Tenant = False, data_dir: DataDir = None, json: AsJson = False) -> int:
    """Say how the tried bundle decided live calls so far."""
    from codesdk.cli.policy.versions import shadow_status

    return shadow_status(data_dir, tenant=tenant, as_json=json)


@shadow_app.command("stop")
def stop_shadow(*, tenant: Tenant = False, data_dir: DataDir = None, json: AsJson = False) -> int:
    """Try it no more, and say how it decided."""
    from codesdk.cli.policy.versions import shadow_status

    return shadow_status(data_dir, tenant=tenant, as_json=json, end=True)
