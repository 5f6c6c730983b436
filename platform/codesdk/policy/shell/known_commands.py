"""Loads and compiles the known commands: those of the packaged file, extended by the entries of a bundle."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import translate
from functools import cache
from pathlib import Path

from codesdk.documents import DocumentUnreadable, parse_document, read_text
from codesdk.domain.canonical import content_hash
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.schema.command_options import (
    ArgumentEffect,
    CommandOptions,
    Commands,
    CommandsFile,
    harmless_parts,
)
from codesdk.policy.shell.nested_command_wrappers import ARGUMENTS_AS_SCRIPT, SHELLS, WRAPPERS
from codesdk.policy.shell.options import Options, fold
from codesdk.policy.shell.per_command_checks import CHECKS, Check
from codesdk.policy.shell.unsafe_options import KnownCommand, KnownCommands

KNOWN_COMMANDS_FILE = Path(__file__).with_name("known_commands.yaml")
_LISTS = ("also", *ArgumentEffect, "harmless", "values", "flags", "unless", "command_options")
_EFFECTS = tuple(ArgumentEffect)
_UNKNOWN = CommandOptions()
_ALL_OPERANDS = 1_000_000
_RUNS_ARGUMENTS = CommandOptions(arguments=ArgumentEffect.RUNS)
_RUN_COMMANDS = frozenset((*SHELLS, *WRAPPERS, *ARGUMENTS_AS_SCRIPT)) - frozenset(CHECKS)
"""Commands that run their arguments, unless the data file or a check describes them."""


@cache
def known_commands() -> KnownCommands:
    """Return the commands that are known without a bundle. Read once for each process.

    Raises:
        PolicyInvalid: the packaged file is invalid.
    """
    return compile_commands(_packaged())


def extended_commands(additions: Commands) -> KnownCommands:
    """Return the known commands with a bundle's entries on top."""
    if not additions:
        return known_commands()
    packaged = _by_name(_packaged())
    merged = dict(packaged)
    for name, entry in additions.items():
        for each in (name, *packaged.get(name, _UNKNOWN).also, *entry.also):
            merged[each] = _merge(_entry(each, packaged) or _UNKNOWN, entry)
    written = {name: entry.model_dump(mode="json", exclude_unset=True) for name, entry in additions.items()}
    return _lazily(merged, packaged, content_hash(written))


def read_commands(path: Path) -> Commands:
    """Read a file of commands.

    Raises:
        PolicyInvalid: with line and column.
    """
    try:
        return parse_document(read_text(path)).model(CommandsFile).commands
    except DocumentUnreadable as error:
        raise PolicyInvalid.of(path, error) from error


def compile_commands(commands: Commands) -> KnownCommands:
    """Return these commands, and those that only have a check. Each is compiled when it is first needed."""
    by_name = _by_name(commands)
    return _lazily(by_name, by_name)


@cache
def _packaged() -> Commands:
    return read_commands(KNOWN_COMMANDS_FILE)


def _by_name(commands: Commands) -> dict[str, CommandOptions]:
    return {each: entry for name, entry in commands.items() for each in (name, *entry.also)}


def _lazily(
    entries: Mapping[str, CommandOptions], packaged: Mapping[str, CommandOptions], additions: str = ""
) -> KnownCommands:
    def compiled(name: str) -> KnownCommand | None:
        check = CHECKS.get(name)
        entry = _entry(name, entries)
        if entry is None:
            return None if check is None else KnownCommand(options=None, check=check)
        return _compile(entry, packaged.get(name, _UNKNOWN), check=check)

    return KnownCommands(compiled, additions)


def _entry(name: str, entries: Mapping[str, CommandOptions]) -> CommandOptions | None:
    return entries.get(name) or (_RUNS_ARGUMENTS if name in _RUN_COMMANDS else None)


def _merge(base: CommandOptions, entry: CommandOptions) -> CommandOptions:
    """Add an entry to a base: lists are joined, other keys replaced, and what the entry calls harmless leaves the lists."""
    found = {name: getattr(entry, name) for name in entry.model_fields_set}
    for name in _LISTS:
        found[name] = tuple(dict.fromkeys((*getattr(base, name), *getattr(entry, name))))
    listed = {option: effect for effect in _EFFECTS for option in entry.options(effect)}
    freed = {option for option, value in map(harmless_parts, entry.harmless) if value is None}
    for effect in _EFFECTS:
        # The entry's own effect counts for an option that the base lists under another.
        found[effect] = tuple(
            option for option in found[effect] if option not in freed and listed.get(option, effect) is effect
        )
    found["harmless"] = tuple(
        each for each in found["harmless"] if each in entry.harmless or harmless_parts(each)[0] not in listed
    )
    found["values"] = tuple(option for option in found["values"] if option not in entry.flags)
    found["flags"] = tuple(option for option in found["flags"] if option not in entry.values)
    found["subcommands"] = _merge_subcommands(base, entry)
    return base.model_copy(update=found)


def _merge_subcommands(base: CommandOptions, entry: CommandOptions) -> dict[str, CommandOptions]:
    packaged = _by_name(base.subcommands)
    merged = dict(packaged)
    for name, sub in entry.subcommands.items():
        for each in (name, *sub.also):
            merged[each] = _merge(packaged.get(each, _UNKNOWN), sub)
    return {name: sub.model_copy(update={"also": ()}) for name, sub in merged.items()}


def _compile(
    entry: CommandOptions, packaged: CommandOptions, parent: CommandOptions | None = None, check: Check | None = None
) -> KnownCommand:
    """Compile a level. A subcommand has its own options and those of its parent, its own first."""
    full = _inherit(parent, entry) if parent is not None else entry
    subcommands: dict[str, KnownCommand] = {}
    known = _by_name(packaged.subcommands)
    for sub_name, sub in entry.subcommands.items():
        compiled = _compile(sub, known.get(sub_name, _UNKNOWN), full)
        subcommands.update(dict.fromkeys((sub_name, *sub.also), compiled))
    return KnownCommand(
        options=_options(full) if _has_unsafe_arguments(full) else None,
        subcommands=subcommands,
        unlisted=entry.unlisted,
        does=None if entry.does in (None, "nothing") else ArgumentEffect(entry.does),
        unless=frozenset(entry.unless),
        arguments=entry.arguments,
        no_operand=entry.no_operand,
        until_operand=bool(entry.until_operand),
        at_files=bool(full.at_files),
        command_at=entry.command_at,
        command_options=frozenset(entry.command_options),
        check=check,
        operands=_ALL_OPERANDS
        if full.at_files
        else max(entry.command_at or 0, bool(subcommands or entry.unlisted or entry.until_operand or entry.no_operand)),
        lists=tuple(_listed_options(full)),
        lists_subcommands=tuple(_listed_subcommands(full)),
        permits=tuple(_permitted(packaged, entry)),
    )


def _has_unsafe_arguments(entry: CommandOptions) -> bool:
    """Return whether any argument can be unsafe. If not, one that is only known at run time isn't, either."""
    listed = any(entry.options(effect) for effect in _EFFECTS)
    return listed or any(
        (entry.arguments, entry.no_operand, entry.unlisted, entry.subcommands, entry.command_at, entry.at_files)
    )


def _inherit(parent: CommandOptions, entry: CommandOptions) -> CommandOptions:
    own = {option for effect in _EFFECTS for option in entry.options(effect)} | {*entry.values, *entry.flags}
    found: dict[str, object] = {
        effect: (*entry.options(effect), *(option for option in parent.options(effect) if option not in own))
        for effect in _EFFECTS
    }
    found["harmless"] = (*entry.harmless, *parent.harmless)
    found["values"] = (*entry.values, *(option for option in parent.values if option not in entry.flags))
    found["flags"] = (*entry.flags, *(option for option in parent.flags if option not in entry.values))
    for name in ("abbreviated", "single_dash", "clusters", "at_files"):
        own_value = getattr(entry, name)
        found[name] = getattr(parent, name) if own_value is None else own_value
    return entry.model_copy(update=found)


def _options(entry: CommandOptions) -> Options:
    single_dash = bool(entry.single_dash)
    clusters = (not single_dash) if entry.clusters is None else entry.clusters
    long: dict[str, ArgumentEffect] = {}
    short: dict[str, ArgumentEffect] = {}
    for effect in _EFFECTS:
        for option in entry.options(effect):
            if _is_short(option) and clusters:
                short[option[1]] = effect
            else:
                long[fold(option)] = effect
    harmless: set[str] = set()
    patterns: dict[str, list[re.Pattern[str]]] = {}
    for each in entry.harmless:
        option, value = harmless_parts(each)
        if value is None:
            harmless.add(fold(option))
        else:
            patterns.setdefault(fold(option), []).append(re.compile(translate(value)))
    return Options(
        long={name: effect for name, effect in long.items() if name not in harmless},
        short={letter: effect for letter, effect in short.items() if letter not in harmless},
        complete=frozenset(name for name in (*harmless, *map(fold, (*entry.values, *entry.flags))) if len(name) > 1),
        harmless_values={name: tuple(found) for name, found in patterns.items()},
        long_values=frozenset(fold(option) for option in entry.values if not (_is_short(option) and clusters)),
        short_values=frozenset(option[1] for option in entry.values if _is_short(option) and clusters),
        flags=frozenset(map(fold, entry.flags)),
        abbreviated=entry.abbreviated is not False,
        single_dash=single_dash,
        clusters=clusters,
    )


def _is_short(option: str) -> bool:
    return len(option) == 2  # noqa: PLR2004 (a dash and a letter)


def _listed_options(entry: CommandOptions) -> Iterator[tuple[str, ArgumentEffect]]:
    freed = {option for option, value in map(harmless_parts, entry.harmless) if value is None}
    for effect in _EFFECTS:
        yield from ((option, effect) for option in entry.options(effect) if option not in freed)


def _listed_subcommands(entry: CommandOptions) -> Iterator[tuple[str, ArgumentEffect]]:
    for name, sub in entry.subcommands.items():
        if sub.does not in (None, "nothing"):
            yield from ((each, ArgumentEffect(sub.does)) for each in (name, *sub.also))


def _permitted(packaged: CommandOptions, entry: CommandOptions) -> Iterator[tuple[str, ArgumentEffect]]:
    """Yield the options and subcommands that are unsafe in the packaged file, and not in the entry."""
    listed = {name for name, _ in (*_listed_options(entry), *_listed_subcommands(entry))}
    unsafe = (*_listed_options(packaged), *_listed_subcommands(packaged))
    yield from ((name, effect) for name, effect in unsafe if name not in listed)
