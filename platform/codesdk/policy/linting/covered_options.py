"""Lists which unsafe arguments `...` of an allow rule excludes, and which it covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from codesdk.domain.decisions import Effect
from codesdk.policy.bundles.bundle import Bundle, Finding
from codesdk.policy.matching.compiled_rules import CompiledRule
from codesdk.policy.schema.command_options import ArgumentEffect
from codesdk.policy.shell.patterns import EFFECT_PHRASES, Pattern
from codesdk.policy.shell.unsafe_options import KnownCommand
from codesdk.policy.shell.words import Word

_MAX_LISTED = 5
"""Kinds of commands of a rule whose excluded arguments are listed; of a rule with more, only their names."""
_MAX_SPELLED = 400
"""Combinations of a pattern's alternatives that are looked at."""


def covered_options(bundle: Bundle, directory: Path) -> tuple[Finding, ...]:
    """Return for each allow rule the unsafe arguments that its `...` lets through, and those that it excludes.

    These are notes, not problems. `directory` is that of the bundle.
    """
    return tuple(
        Finding(str(directory / rule.file), rule.line, 1, f"The rule `{rule.id}`: {message}")
        for rule in bundle.rules
        if rule.effect is Effect.ALLOW
        for message in _notes(rule)
    )


def _notes(rule: CompiledRule) -> Iterator[str]:
    excluded: dict[str, list[str]] = {}
    trusted: dict[str, list[str]] = {}
    unknown: list[str] = []
    for pattern in rule.matcher.patterns:
        for words in _spelled(pattern) if pattern.rest else ():
            shown = f"`{' '.join(words)} ...`"
            reached = rule.commands.innermost([Word(text) for text in words])
            if reached is None:
                unknown.append(shown)
                continue
            known, named = reached
            arguments = _arguments(known, named=named)
            if arguments:
                (trusted if pattern.trust_arguments else excluded).setdefault(arguments, []).append(shown)
            if known.permits:
                yield f"{shown} also allows {_by_effect(known.permits)}, because the bundle lists them as harmless."
    for arguments, commands in trusted.items():
        yield f"{', '.join(commands)} also allows {arguments}, because of `trust_arguments`."
    if len(excluded) <= _MAX_LISTED:
        yield from (f"{', '.join(commands)} excludes {arguments}." for arguments, commands in excluded.items())
    else:
        names = dict.fromkeys(
            shown.strip("`").partition(" ")[0] for commands in excluded.values() for shown in commands
        )
        yield f"`...` excludes the arguments of {', '.join(f'`{name}`' for name in names)} that run code or write."
    if unknown:
        each = ", ".join(dict.fromkeys(unknown))
        yield f"{each} allows every option; if some run code or write, list them under `commands`."


def _spelled(pattern: Pattern) -> list[list[str]]:
    """Return the commands that a pattern spells out; none if a word of it is a glob."""
    spelled: list[list[str]] = [[]]
    for token in pattern.tokens:
        alternatives = [] if token.glob is not None else sorted(token.words)
        spelled = [[*words, word] for words in spelled for word in alternatives][:_MAX_SPELLED]
    return spelled


def _arguments(known: KnownCommand, *, named: bool) -> str:
    """Return the unsafe arguments of a command by what they do; `named` if its subcommand is spelled out."""
    parts = [_by_effect([*known.lists, *(() if named else known.lists_subcommands)])]
    if known.unlisted is not None and not named:
        parts.append("subcommands that are not listed")
    if known.command_at is not None or known.command_options:
        parts.append("the command that it runs")
    if known.arguments is not None:
        parts.append("every argument")
    if known.check is not None:
        parts.append(known.check.excludes)
    return ", ".join(part for part in parts if part)


def _by_effect(listed: Sequence[tuple[str, ArgumentEffect]]) -> str:
    effects: dict[ArgumentEffect, list[str]] = {}
    for option, effect in listed:
        effects.setdefault(effect, []).append(f"`{option}`")
    return ", ".join(f"what {EFFECT_PHRASES[effect]} ({', '.join(options)})" for effect, options in effects.items())
