"""Summarizes a tool's access before any call, with the rules responsible. For lists that people read."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from codesdk.domain.decisions import Classification, Effect, PermissionMode
from codesdk.domain.subjects import Subject
from codesdk.policy.bundles.bundle import Bundle
from codesdk.policy.evaluation.decision import Reachability, may_ever_allow
from codesdk.policy.facts import ToolFacts
from codesdk.policy.matching.compiled_rules import CompiledRule

DEFAULT_EFFECT = "default"
ASK_MODE = "the mode ask"


class AccessLevel(StrEnum):
    """Access to a tool, independent of the input."""

    ON = "on"
    """Every call is allowed."""
    ASKED = "asked"
    """Every call needs approval, unless it is denied."""
    DEPENDS = "depends"
    """The input decides."""
    OFF = "off"
    """No call is ever allowed."""


class ToolAccess(NamedTuple):
    """An access level and its cause: ids of rules, `default`, or the mode."""

    word: AccessLevel
    by: tuple[str, ...]

    def __str__(self) -> str:
        """For people."""
        said = {
            AccessLevel.ON: "always allowed",
            AccessLevel.ASKED: "always needs approval",
            AccessLevel.DEPENDS: "depends on the input",
            AccessLevel.OFF: "never allowed",
        }[self.word]
        return f"{said}: {', '.join(self.by)}" if self.by else said


def tool_access(tool: ToolFacts, subject: Subject, bundle: Bundle) -> ToolAccess:
    """The access level of a tool for a subject."""
    mode = subject.permission_mode
    fitting = [
        rule
        for rule in bundle.index.rules_for(tool.name, tool.classification).all
        if not rule.matcher.fits_subject(subject)
    ]
    sure = [rule for rule in fitting if not rule.matcher.depends_on_input and rule.unless is None]
    possibility = may_ever_allow(tool, subject, bundle)
    if possibility is Reachability.NEVER:
        denies = tuple(rule.id for rule in sure if rule.effect is Effect.DENY)
        if denies or tool.enabled or tool.name in bundle.enabled:
            return ToolAccess(AccessLevel.OFF, denies or ((DEFAULT_EFFECT,) if not sure else ()))
        return ToolAccess(AccessLevel.OFF, ("switched off in its manifest",))
    if possibility is Reachability.ALWAYS:
        return ToolAccess(AccessLevel.ON, tuple(rule.id for rule in sure))
    asks = tuple(rule.id for rule in sure if _asks(rule, mode))
    if not fitting and bundle.default is Effect.ASK and mode is not PermissionMode.YOLO:
        asks = (DEFAULT_EFFECT,)
    if not asks and mode is PermissionMode.ASK and tool.classification is not Classification.READ_ONLY:
        asks = (ASK_MODE,)
    if asks:
        return ToolAccess(AccessLevel.ASKED, asks)
    return ToolAccess(AccessLevel.DEPENDS, tuple(rule.id for rule in fitting if rule not in sure))


def _asks(rule: CompiledRule, mode: PermissionMode) -> bool:
    if rule.effect is not Effect.ASK:
        return False
    if mode is PermissionMode.YOLO:
        return rule.rule.floor
    return not (mode is PermissionMode.AUTO and rule.rule.auto_ok)
