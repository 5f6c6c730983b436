"""`codesdk policy lint` and `test`."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.policy import Format
from codesdk.cli.policy.loading import bundle_directory, known_tools, load, owning_tenant
from codesdk.cli.policy.reports import Item, Kind, Report, write, write_findings
from codesdk.domain.clock import SystemClock
from codesdk.errors import ExitCode
from codesdk.policy import Bundle, covered_options, lint, load_bundle
from codesdk.policy.testing.cases import CaseResult, coverage, read_expectations, run_cases
from codesdk.policy.testing.mutation import Mutant, run_mutants


def run_lint(directory: Path | None, form: Format, *, strict: bool) -> int:
    """Report all findings. Returns 65 if the bundle is invalid."""
    place = bundle_directory(directory)
    tools = known_tools(place)
    day, is_shared = SystemClock().now().date(), owning_tenant(place) is None
    findings = lint(place, list(tools), tool_schemas=tools, day=day, may_enable=is_shared)
    usable = not any(finding.fatal for finding in findings)
    notes = covered_options(load_bundle(place, list(tools)), place) if usable else ()
    return write_findings(str(place), findings, form, strict=strict, notes=notes)


def run_tests(directory: Path | None, form: Format, *, mutants: bool, cover: bool) -> int:
    """Run all tests; `mutants` also runs mutation testing.

    Raises:
        PolicyInvalid: the bundle or a test file is invalid.
    """
    bundle, tools, place = load(directory)
    expectations = read_expectations(place)
    results = list(run_cases(expectations, tools, bundle))
    counts = coverage(results, bundle)
    unreached = [rule for rule, count in counts.items() if not count]
    failed = [result for result in results if result.problem]
    tried = list(run_mutants(expectations, tools, bundle)) if mutants and not failed else []
    items = [_item(result) for result in results]
    items += [
        Item(str(place / rule.file), rule.line, 1, f"No test reaches the rule `{rule.id}`.", "warning")
        for rule in bundle.rules
        if rule.id in unreached
    ]
    items += [_surviving_mutant_item(place, mutant, bundle) for mutant in tried if not mutant.killed]
    killed = sum(mutant.killed for mutant in tried)
    reached = len(counts) - len(unreached)
    summary = f"{len(results) - len(failed)} of {len(results)} tests pass, {reached} of {len(counts)} rules reached"
    facts = {"tests": len(results), "failed": len(failed), "rules": counts, "bundle": bundle.hash}
    if tried:
        summary += f", {killed} of {len(tried)} mutants noticed ({killed / len(tried):.0%})"
        facts["mutants"] = {"tried": len(tried), "noticed": killed, "score": round(killed / len(tried), 4)}
    if not results:
        summary = f"There is no test: write one in {place / 'tests'}"
    write(Report("test", items, summary, facts), form)
    return ExitCode.FAILED if failed or not results or (cover and unreached) else ExitCode.OK


def _item(result: CaseResult) -> Item:
    expectation = result.expectation
    kind: Kind = "error" if result.problem else "passed"
    message = result.problem or "as expected"
    return Item(expectation.file, expectation.line, 1, message, kind, expectation.name)


def _surviving_mutant_item(place: Path, mutant: Mutant, bundle: Bundle) -> Item:
    rule = bundle.rule(mutant.rule)
    file, line = (str(place / rule.file), rule.line) if rule else (str(place), 1)
    return Item(file, line, 1, f"No test notices where the rule `{mutant.rule}` {mutant.damage}.", "warning")
