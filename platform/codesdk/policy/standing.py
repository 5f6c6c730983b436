"""What a bundle says of a tool before anybody calls it, in one word, and the rules that make it so: for people who look."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from codesdk.domain.decisions import Classification, Effect, PermissionMode
from codesdk.domain.subjects import Subject
from codesdk.policy.bundle import Bundle
from codesdk.policy.decide import Possibility, may_ever_allow
from codesdk.policy.facts import ToolFacts
from codesdk.policy.rules import CompiledRule

THE_DEFAULT = "default"
THE_MODE = "the mode ask"


class Word(StrEnum):
    """Whatever the input is."""

    ON = "on"
    """Every call is allowed."""
    ASKED = "asked"
    """Every call that is not denied waits for a person."""
    DEPENDS = "depends"
    """On its input."""
    OFF = "off"
    """No call is ever allowed."""


class ToolStanding(NamedTuple):
    """The word, and what it comes from: ids of rules, `default`, or the mode."""

    word: Word
    by: tuple[str, ...]

    def __str__(self) -> str:
        """For people."""
        said = {
            Word.ON: "always allowed",
            Word.ASKED: "always needs approval",
            Word.DEPENDS: "depends on the input",
            Word.OFF: "never allowed",
        }[self.word]
        return f"{said}: {', '.join(self.by)}" if self.by else said


def standing(tool: ToolFacts, subject: Subject, bundle: Bundle) -> ToolStanding:
    """What every call of the tool by this subject has before it."""
    mode = subject.permission_mode
    fitting = [
        rule
        for rule in bundle.index.rules_for(tool.name, tool.classification).all
        if not rule.matcher.fits_subject(subject)
    ]
    sure = [rule for rule in fitting if not rule.matcher.depends_on_input and rule.unless is None]
    possibility = may_ever_allow(tool, subject, bundle)
    if possibility is Possibility.NEVER:
        denies = tuple(rule.id for rule in sure if rule.effect is Effect.DENY)
        if denies or tool.enabled or tool.name in bundle.enabled:
            return ToolStanding(Word.OFF, denies or ((THE_DEFAULT,) if not sure else ()))
        return ToolStanding(Word.OFF, ("switched off in its manifest",))
    if possibility is Possibility.ALWAYS:
        return ToolStanding(Word.ON, tuple(rule.id for rule in sure))
    asks = tuple(rule.id for rule in sure if _asks(rule, mode))
    if not fitting and bundle.default is Effect.ASK and mode is not PermissionMode.YOLO:
        asks = (THE_DEFAULT,)
    if not asks and mode is PermissionMode.ASK and tool.classification is not Classification.READ_ONLY:
        asks = (THE_MODE,)
    if asks:
        return ToolStanding(Word.ASKED, asks)
    return ToolStanding(Word.DEPENDS, tuple(rule.id for rule in fitting if rule not in sure))


def _asks(rule: CompiledRule, mode: PermissionMode) -> bool:
    if rule.effect is not Effect.ASK:
        return False
    if mode is PermissionMode.YOLO:
        return rule.rule.floor
    return not (mode is PermissionMode.AUTO and rule.rule.auto_ok)
