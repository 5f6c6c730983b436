"""Checks a rule's own examples against the rule alone."""

from __future__ import annotations

from codesdk.domain.decisions import Classification
from codesdk.domain.ids import PrincipalId, SessionId, TenantId
from codesdk.domain.subjects import Subject
from codesdk.policy.facts import Call, ExampleTool
from codesdk.policy.matching.compiled_rules import CompiledRule, MatchOutcome, PolicyInput
from codesdk.policy.schema.models import Example


def failed_example(rule: CompiledRule) -> tuple[str, int] | None:
    """Return the kind (`match` or `no_match`) and index of the first example that fails; None if all pass."""
    for kind, examples, wanted in (
        ("match", rule.rule.examples.match, True),
        ("no_match", rule.rule.examples.no_match, False),
    ):
        for number, example in enumerate(examples):
            if _matches(rule, example) is not wanted:
                return kind, number
    return None


def _matches(rule: CompiledRule, example: Example) -> bool:
    """Return whether the rule alone matches. A possible match counts, because it asks."""
    classes = rule.rule.classification
    classification = example.classification or (classes[0] if classes else Classification.WRITE)
    tool = ExampleTool(name=example.tool, classification=classification)
    if rule.matcher.fits_tool(tool.name, tool.classification):
        return False
    subject = Subject(
        tenant_id=TenantId(example.tenant),
        principal_id=PrincipalId(example.principal),
        session_id=SessionId("ses_example"),
        permission_mode=example.mode,
        runtime=example.runtime,
        roles=example.roles,
        labels=example.labels,
    )
    match = rule.match(PolicyInput(Call(name=example.tool, input=example.input), tool, subject))
    return match.verdict in (MatchOutcome.YES, MatchOutcome.MAYBE)
