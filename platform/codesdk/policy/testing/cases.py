"""Runs the tests of a bundle: cases and tables in YAML files in its folder `tests`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from codesdk.documents import Document, DocumentUnreadable, parse_document
from codesdk.domain.decisions import Classification, Decision, Effect, PermissionMode
from codesdk.domain.model import FrozenModel
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.bundles.bundle_files import BundleTexts, read_test_texts, test_texts
from codesdk.policy.evaluation.query import PolicyQuery, QueryPrincipal, QuerySession, evaluate
from codesdk.policy.facts import ExampleTool, ToolFacts
from codesdk.policy.faults import PolicyInvalid

_SHELL_TOOL = "workspace.exec"


class CaseSubject(FrozenModel):
    """The subject of a test call. By default a principal without roles, in a session without labels."""

    principal: str = QueryPrincipal().id
    roles: tuple[str, ...] = ()
    tenant: str = QuerySession().tenant
    runtime: str = QuerySession().runtime
    labels: dict[str, str] = {}


class Case(FrozenModel):
    """One call and its expected decision."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(min_length=1, max_length=200)
    tool: str = _SHELL_TOOL
    input: dict[str, Any] | None = None
    command: str | None = None
    """A shell line, as a short form of `input`."""
    as_: CaseSubject = Field(default=CaseSubject(), alias="as")
    mode: PermissionMode = PermissionMode.AUTO
    expect: Effect
    by: str | None = None
    """The id of a rule that must be among the deciding ones; `default` if no rule may decide."""

    @model_validator(mode="after")
    def _check_input(self) -> Case:
        if (self.input is None) == (self.command is None):
            raise ValueError("a case has either `input` or `command`.")
        return self


class CaseTable(FrozenModel):
    """Many calls with one expected decision, or one for each mode."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    name: str = Field(min_length=1, max_length=200)
    tool: str = _SHELL_TOOL
    commands: tuple[str, ...] = ()
    inputs: tuple[dict[str, Any], ...] = ()
    as_: CaseSubject = Field(default=CaseSubject(), alias="as")
    expect: Effect | None = None
    modes: dict[PermissionMode, Effect] | None = None
    by: str | None = None

    @model_validator(mode="after")
    def _check_expectation(self) -> CaseTable:
        if (self.expect is None) == (self.modes is None):
            raise ValueError("a table has either `expect` or `modes`.")
        if not self.commands and not self.inputs:
            raise ValueError("a table has `commands` or `inputs`.")
        return self


class CaseFile(FrozenModel):
    """A test file."""

    version: Literal[1]
    tools: dict[str, Classification] = {}
    """Tools that exist only in these tests, for rules about classifications that no manifest has yet."""
    enable: tuple[str, ...] = ()
    """Tools that these tests treat as enabled, for rules about tools that the bundle leaves disabled."""
    cases: tuple[Case, ...] = ()
    tables: tuple[CaseTable, ...] = ()


@dataclass(frozen=True)
class Expectation:
    """One test call, its expected decision, and its position in the test file."""

    name: str
    file: str
    line: int
    trial: PolicyQuery
    effect: Effect
    by: str | None
    tools: Mapping[str, ExampleTool]
    """Added to the registry's tools."""
    enable: frozenset[str]

    def judge(self, tools: Mapping[str, ToolFacts], bundle: Bundle, *, every: bool) -> Decision:
        """Decide the call under the bundle, with the tools of the tests."""
        if not self.enable <= bundle.enabled:
            bundle = replace(bundle, enabled=bundle.enabled | self.enable)
        return evaluate(self.trial, {**tools, **self.tools} if self.tools else tools, bundle, every=every)

    def mismatch(self, decision: Decision) -> str:
        """Return how the decision differs from the expected one; empty if it doesn't."""
        if decision.effect is not self.effect:
            deciders = ", ".join(decision.rules) or "default"
            return f"expected {self.effect}, got {decision.effect} by {deciders}: {decision.reason}"
        if self.by == "default" and decision.rules:
            return f"expected no rule to decide, {', '.join(decision.rules)} did"
        if self.by not in (None, "default") and self.by not in decision.rules:
            return f"expected `{self.by}` to decide, got {', '.join(decision.rules) or 'default'}"
        return ""


@dataclass(frozen=True)
class CaseResult:
    """The result of one test."""

    expectation: Expectation
    decision: Decision
    problem: str
    """Why the test fails; empty if it passes."""


def read_expectations(directory: Path) -> list[Expectation]:
    """Read all tests of the bundle in `directory`, in the order of files and lines.

    Raises:
        PolicyInvalid: a test file is invalid; with the position.
    """
    return parse_expectations(read_test_texts(directory), directory)


def parse_expectations(sources: BundleTexts, directory: Path) -> list[Expectation]:
    """Parse all tests in these texts. `directory` appears in messages.

    Raises:
        PolicyInvalid: with the position of the error.
    """
    found: list[Expectation] = []
    for name, text in sorted(test_texts(sources).items()):
        path = directory / name
        try:
            document = parse_document(text)
            file = document.model(CaseFile)
        except DocumentUnreadable as error:
            raise PolicyInvalid.of(path, error) from error
        found += _file_expectations(path, document, file)
    return found


def failed_tests(
    sources: BundleTexts,
    bundle: Bundle,
    tools: Mapping[str, ToolFacts],
    directory: Path,
    before_each: Callable[[], None] = lambda: None,
) -> list[PolicyInvalid]:
    """Run a bundle's own tests. Return a problem for each that fails. `directory` appears in messages.

    `before_each` is called before each test, and may raise to end them.

    Raises:
        PolicyInvalid: a test file is invalid.
    """

    def timed() -> Iterator[Expectation]:
        for expectation in parse_expectations(sources, directory):
            before_each()
            yield expectation

    results = run_cases(timed(), tools, bundle, every=False)
    return [
        PolicyInvalid(
            each.expectation.file, each.expectation.line, 1, f"The test `{each.expectation.name}` fails: {each.problem}"
        )
        for each in results
        if each.problem
    ]


def run_cases(
    expectations: Iterable[Expectation], tools: Mapping[str, ToolFacts], bundle: Bundle, *, every: bool = True
) -> Iterator[CaseResult]:
    """Run the tests. `every` puts all rules into the trace, which coverage needs."""
    enabling: dict[frozenset[str], Bundle] = {}  # a bundle indexes its rules once
    for expectation in expectations:
        if expectation.enable not in enabling:
            enabling[expectation.enable] = replace(bundle, enabled=bundle.enabled | expectation.enable)
        decision = expectation.judge(tools, enabling[expectation.enable], every=every)
        yield CaseResult(expectation, decision, expectation.mismatch(decision))


def coverage(results: Iterable[CaseResult], bundle: Bundle) -> dict[str, int]:
    """Count the results in which each rule of the bundle matched."""
    counts = {rule.id: 0 for rule in bundle.rules}
    for result in results:
        for entry in result.decision.trace:
            if entry.matched:
                counts[entry.rule] += 1
    return counts


def _file_expectations(path: Path, document: Document, file: CaseFile) -> Iterator[Expectation]:
    tools = {name: ExampleTool(name=name, classification=kind) for name, kind in file.tools.items()}

    def expected(name: str, line: int, trial: PolicyQuery, effect: Effect, *, by: str | None) -> Expectation:
        return Expectation(name, str(path), line, trial, effect, by, tools, frozenset(file.enable))

    for number, case in enumerate(file.cases):
        line = document.place(("cases", number)).line
        given = {"command": case.command} if case.command is not None else case.input or {}
        yield expected(case.name, line, _query(case.tool, given, case.as_, case.mode), case.expect, by=case.by)
    for number, table in enumerate(file.tables):
        modes = table.modes or {PermissionMode.AUTO: table.expect or Effect.DENY}
        for key, at, given in _rows(table):
            line = document.place(("tables", number, key, at)).line
            for mode, effect in modes.items():
                name = f"{table.name}: {given.get('command', given)}" + (f" [{mode}]" if table.modes else "")
                yield expected(name, line, _query(table.tool, given, table.as_, mode), effect, by=table.by)


def _rows(table: CaseTable) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for at, command in enumerate(table.commands):
        yield "commands", at, {"command": command}
    for at, given in enumerate(table.inputs):
        yield "inputs", at, given


def _query(tool: str, given: dict[str, Any], who: CaseSubject, mode: PermissionMode) -> PolicyQuery:
    return PolicyQuery(
        tool=tool,
        input=given,
        principal=QueryPrincipal(id=who.principal, roles=who.roles),
        mode=mode,
        session=QuerySession(tenant=who.tenant, runtime=who.runtime, labels=who.labels),
    )
