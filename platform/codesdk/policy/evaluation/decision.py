"""Decides a call: all matching rules count, the strictest effect wins.

Commands that can't be read are never allowed, unless a rule with `any_command` does and no rule looks at them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from codesdk.domain.decisions import (
    Classification,
    CommandCause,
    Decision,
    Effect,
    PermissionMode,
    RuleRate,
    RuleTrace,
    combine_obligations,
)
from codesdk.domain.subjects import Subject
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.evaluation import command_cause
from codesdk.policy.evaluation.approval_requirements import merge_approvals, merge_grants, single_approver
from codesdk.policy.facts import CallFacts, ToolFacts
from codesdk.policy.matching.compiled_rules import CompiledRule, Match, MatchOutcome, PolicyInput
from codesdk.policy.shell.commands import ShellViews, SimpleCommand
from codesdk.policy.shell.patterns import OTHER_ARGUMENTS, Pattern

SHELL_TOOLS = frozenset({"workspace.exec", "process.start"})
"""Tools whose input is a command; a command that can't be parsed needs approval."""


class Reachability(StrEnum):
    """Whether calls of a tool can be allowed, before their input is known."""

    NEVER = "never"
    """No input can be allowed, so the tool is not listed."""
    DEPENDS = "depends"
    ALWAYS = "always"


def decide(
    call: CallFacts, tool: ToolFacts, subject: Subject, bundle: Bundle, *, granted: Collection[str] = ()
) -> Decision:
    """Decide one call. Pure and total; the trace holds the rules that matched or failed to evaluate.

    `granted`: ids of ask rules that a grant covers; each counts as an allow.
    """
    return _decide(call, tool, subject, bundle, granted=granted)


def explain(call: CallFacts, tool: ToolFacts, subject: Subject, bundle: Bundle) -> Decision:
    """The same decision, with every rule of the bundle in the trace and why it did not match."""
    return _decide(call, tool, subject, bundle, every=True)


def may_ever_allow(tool: ToolFacts, subject: Subject, bundle: Bundle) -> Reachability:
    """Whether some input could be allowed, at once or after an approval. For tool lists."""
    if not bundle.rules or _disabled(tool, bundle):
        return Reachability.NEVER
    sure: set[Effect] = set()
    possible: set[Effect] = set()
    opened = not bundle.closed
    for rule in bundle.index.rules_for(tool.name, tool.classification).all:
        if rule.matcher.fits_subject(subject):
            continue
        possible.add(rule.effect)
        opened = opened or (rule.effect is not Effect.DENY and rule.layer not in bundle.closed)
        if not rule.matcher.depends_on_input and rule.unless is None:
            sure.add(rule.effect)
    if not sure:
        possible.add(bundle.default or Effect.DENY)
    if Effect.DENY in sure or possible <= {Effect.DENY} or not opened:
        return Reachability.NEVER
    asks = subject.permission_mode is PermissionMode.ASK and tool.classification is not Classification.READ_ONLY
    reads_commands = tool.name in SHELL_TOOLS
    return (
        Reachability.ALWAYS
        if sure == possible == {Effect.ALLOW} and not asks and not reads_commands
        else Reachability.DEPENDS
    )


@dataclass
class _MatchedRules:
    """The rules that matched, by effect."""

    denies: list[CompiledRule] = field(default_factory=list)
    asks: list[CompiledRule] = field(default_factory=list)
    allows: list[CompiledRule] = field(default_factory=list)
    maybe_denies: list[CompiledRule] = field(default_factory=list)
    """Deny rules that may match, depending on an argument known only at run time: these need approval."""
    unseen_denies: list[CompiledRule] = field(default_factory=list)
    unseen_asks: list[CompiledRule] = field(default_factory=list)
    """Rules that may match a command that can't be seen."""
    parts: list[tuple[CompiledRule, Match]] = field(default_factory=list)
    refusals: dict[int, str] = field(default_factory=dict)
    """Why the first allow rule on a command of the line does not cover it, by the command's index."""
    commands: dict[str, str] = field(default_factory=dict)
    """The command of the line that a rule matches, by rule."""
    places: dict[str, tuple[Pattern, SimpleCommand]] = field(default_factory=dict)
    """The pattern and the command that match, by rule."""
    paths: dict[str, str] = field(default_factory=dict)
    """The path that a rule matches, and how, by rule."""
    trace: list[RuleTrace] = field(default_factory=list)

    def add(self, rule: CompiledRule, match: Match) -> None:
        self._note_refusals(rule, match)
        if match.verdict is MatchOutcome.NO:
            return
        if match.command:
            self.commands[rule.id] = match.command
        if match.place:
            self.places[rule.id] = match.place
        if match.path:
            self.paths[rule.id] = match.path
        if match.verdict is MatchOutcome.UNSEEN:
            (self.unseen_denies if rule.effect is Effect.DENY else self.unseen_asks).append(rule)
        elif match.verdict is MatchOutcome.PART:
            self.parts.append((rule, match))
        elif rule.effect is Effect.ALLOW:
            self.allows.append(rule)
            self.parts.append((rule, match))
        elif rule.effect is Effect.ASK:
            self.asks.append(rule)
        elif match.verdict is MatchOutcome.MAYBE:
            self.maybe_denies.append(rule)
        else:
            self.denies.append(rule)

    def _note_refusals(self, rule: CompiledRule, match: Match) -> None:
        for index, why in match.refusals.items():
            # The refusal of a rule on the same arguments is more helpful than that of a rule on others.
            if index not in self.refusals or self.refusals[index].endswith(OTHER_ARGUMENTS):
                self.refusals[index] = f"the rule `{rule.id}` {why}"

    def named_command(self, rule: CompiledRule, shell: ShellViews | None) -> str:
        """Name the path that the rule is about, and the command if the line has more than one."""
        path = f" {self.paths[rule.id]}." if rule.id in self.paths else ""
        command = self.commands.get(rule.id, "")
        return path + (f" Command: `{command}`." if command and shell is not None and len(shell.seen) > 1 else "")

    def first_uncovered(self, allow_view: Sequence[SimpleCommand]) -> int | None:
        """The index of the first command of the line that no allow rule covers."""
        covered = frozenset[int]().union(*(match.covered for _, match in self.parts))
        return next((index for index in range(len(allow_view)) if index not in covered), None)

    def join_parts(self, shell: ShellViews | None) -> None:
        """Several allow rules may cover one line together: `cd src && pytest`."""
        if self.allows or shell is None or shell.allow_view is None:
            return
        covered: set[int] = set()
        for _, match in self.parts:
            covered |= match.covered
        if len(covered) == len(shell.allow_view):
            self.allows = [rule for rule, match in self.parts if match.covered]


def _disabled(tool: ToolFacts, bundle: Bundle) -> bool:
    return not tool.enabled and tool.name not in bundle.enabled


def _decide(
    call: CallFacts,
    tool: ToolFacts,
    subject: Subject,
    bundle: Bundle,
    *,
    every: bool = False,
    granted: Collection[str] = (),
) -> Decision:
    if not bundle.rules:
        return _deny(bundle, bundle.broken or f"The policy bundle `{bundle.name}` has no rules, so nothing is allowed.")
    if _disabled(tool, bundle):
        return _deny(
            bundle, f"The tool `{tool.name}` is disabled; a policy bundle switches it on with `enable: [{tool.name}]`."
        )
    question = PolicyInput(call, tool, subject)
    rules = bundle.index.rules_for(tool.name, tool.classification)
    found = _MatchedRules()
    for written in bundle.rules if every else rules.candidates(question):
        rule = written
        if rule.id in granted and rule.effect is Effect.ASK and not rule.rule.floor:
            if rule.layer in bundle.closed:
                continue  # this layer can't allow on its own, so a grant only removes its ask
            rule = rule.granted()
        why = rule.matcher.fits_tool(tool.name, tool.classification) if every else ""
        match = Match(MatchOutcome.NO, why) if why else rule.match(question)
        found.add(rule, match)
        if every or match.error or match.verdict in (MatchOutcome.YES, MatchOutcome.MAYBE):
            found.trace.append(_trace_entry(rule, match))
    runs_commands = not rules.allows_any_command and (rules.has_commands or tool.name in SHELL_TOOLS)
    shell = question.shell if runs_commands else None
    found.join_parts(shell)
    if bundle.closed and not found.allows and all(rule.layer in bundle.closed for rule in found.asks):
        found.asks = []  # no layer above allows or asks, so there is nothing to approve
    return _verdict(question, bundle, found, shell, granted=bool(granted))


def _verdict(
    question: PolicyInput, bundle: Bundle, found: _MatchedRules, shell: ShellViews | None, *, granted: bool
) -> Decision:
    """Apply the strictest effect, then the review of unknowns, then the permission mode."""
    if found.denies:
        rule = _speaker(found.denies)
        reason = rule.rule.reason or f"The rule `{rule.id}` denies this call."
        return _deny(bundle, reason + found.named_command(rule, shell), found.denies, found.trace)
    if found.unseen_denies and shell is not None and shell.over_limit:
        rule = found.unseen_denies[0]
        reason = (
            f"The rule `{rule.id}` may deny this: {shell.opaque}. Run fewer and shorter commands in one call, or put them "
            "into a script file."
        )
        return _deny(bundle, reason, [rule], found.trace)
    spoke = found.asks or found.allows
    effect = (Effect.ASK if found.asks else Effect.ALLOW) if spoke else (bundle.default or Effect.DENY)
    reason = _reason(bundle, found, effect, shell)
    if effect is Effect.DENY:
        return _deny(bundle, reason, (), found.trace)
    unknown = _review_reason(found, shell)
    floor = bool(unknown) or any(rule.rule.floor for rule in found.asks)
    about = spoke
    if unknown and effect is Effect.ALLOW:
        effect, reason, spoke = Effect.ASK, unknown, found.maybe_denies
        about = spoke if not shell or not shell.opaque else []
    subject, tool = question.subject, question.tool
    mode = subject.permission_mode
    eager = mode is PermissionMode.ASK and tool.classification is not Classification.READ_ONLY
    if effect is Effect.ALLOW and eager and not granted:  # a person has already approved what a grant covers
        effect, reason = Effect.ASK, f"The session's mode `ask` asks before `{tool.name}`."
        shell = None  # it is about the whole call
    elif effect is Effect.ASK and not floor:
        automatic = bool(found.asks) and all(rule.rule.auto_ok for rule in found.asks)
        if mode is PermissionMode.YOLO or (mode is PermissionMode.AUTO and automatic):
            effect, reason = Effect.ALLOW, f"The session's mode `{mode}` allows what would be asked: {reason}"
    demanding = (*found.asks, *found.unseen_asks)
    approval = merge_approvals(rule.rule.approval for rule in demanding) if effect is Effect.ASK else None
    binding = (*found.asks, *(rule for rule, _ in found.parts))  # the parts hold every rule that allows
    return Decision(
        effect=effect,
        rules=tuple(rule.id for rule in spoke),
        rule_hashes={rule.id: rule.hash for rule in spoke},
        reason=reason,
        bundle_hash=bundle.hash,
        approval=approval,
        grant=merge_grants([rule.rule.grant for rule in found.asks])
        if approval and not floor and single_approver(approval)
        else None,
        obligations=combine_obligations(rule.rule.obligations for rule in binding),
        rates=_rates(binding),
        trace=tuple(found.trace),
        cause=_cause(found, about, shell) if effect is Effect.ASK and shell is not None else None,
    )


def _cause(found: _MatchedRules, about: Sequence[CompiledRule], shell: ShellViews) -> CommandCause | None:
    """The command and the words that the reason is about."""
    if about:
        place = found.places.get(_speaker(about).id)
        return command_cause.matched_by(*place) if place else None
    if shell.allow_view is None:
        return command_cause.unreadable(shell)
    index = found.first_uncovered(shell.allow_view)
    if index is None:
        return None
    return command_cause.not_allowed(shell.allow_view[index], has_rule=index in found.refusals)


def _speaker(rules: Sequence[CompiledRule]) -> CompiledRule:
    """The rule whose reason is shown: the first with a reason, or the first."""
    return next((rule for rule in rules if rule.rule.reason), rules[0])


def _review_reason(found: _MatchedRules, shell: ShellViews | None) -> str:
    """Why the call needs approval even if rules allow it; empty if nothing is unknown."""
    if shell is not None and shell.opaque:
        return f"The command cannot be judged by rules: {shell.opaque}."
    if found.maybe_denies:
        rule = found.maybe_denies[0]
        return f"The rule `{rule.id}` may deny this: {found.paths.get(rule.id) or 'an argument is only known when it runs'}."
    return ""


def _reason(bundle: Bundle, found: _MatchedRules, effect: Effect, shell: ShellViews | None) -> str:
    if found.asks or found.allows:
        rule = _speaker(found.asks or found.allows)
        verb = "asks about" if found.asks else "allows"
        return (rule.rule.reason or f"The rule `{rule.id}` {verb} this call.") + found.named_command(rule, shell)
    what = _not_allowed(found, shell)
    if bundle.default:
        return f"No rule allows {what}; the bundle `{bundle.name}` then says {effect}."
    return f"No rule of the bundle `{bundle.name}` allows {what}."


def _not_allowed(found: _MatchedRules, shell: ShellViews | None) -> str:
    """Name the first command that no rule allows, and why the first rule on this command does not."""
    if shell is None:
        return "this call"
    if shell.allow_view is None:
        return f"this line: {shell.refusal}"
    index = found.first_uncovered(shell.allow_view)
    if index is None:
        return "this call"
    command = shell.allow_view[index].shown
    return f"`{command}`: {found.refusals[index]}" if index in found.refusals else f"`{command}`"


def _rates(rules: Iterable[CompiledRule]) -> tuple[RuleRate, ...]:
    rated = ((rule.id, rule.rule.obligations.rate) for rule in rules)
    return tuple(RuleRate(rule=rule, rate=rate) for rule, rate in rated if rate is not None)


def _deny(bundle: Bundle, reason: str, rules: Sequence[CompiledRule] = (), trace: Iterable[RuleTrace] = ()) -> Decision:
    return Decision(
        effect=Effect.DENY,
        rules=tuple(rule.id for rule in rules),
        rule_hashes={rule.id: rule.hash for rule in rules},
        reason=reason,
        bundle_hash=bundle.hash,
        trace=tuple(trace),
    )


def _trace_entry(rule: CompiledRule, match: Match) -> RuleTrace:
    matched = match.verdict in (MatchOutcome.YES, MatchOutcome.MAYBE)
    return RuleTrace(rule=rule.id, effect=rule.effect, matched=matched, why=match.why, error=match.error)
