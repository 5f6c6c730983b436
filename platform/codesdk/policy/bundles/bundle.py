"""Policy bundles: directories of YAML files, loaded whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from codesdk.documents import Document, DocumentUnreadable, Position, nearest, parse_document
from codesdk.domain.canonical import NotCanonical, bytes_hash, content_hash
from codesdk.domain.decisions import Effect
from codesdk.policy.bundles.bundle_files import BundleTexts, read_bundle_texts, rule_texts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.linting.tool_schemas import ToolCatalog
from codesdk.policy.linting.unmatchable_rules import rule_problems
from codesdk.policy.matching.compiled_rules import CompiledRule, compile_rule
from codesdk.policy.matching.rule_examples import failed_example
from codesdk.policy.matching.rule_index import RuleIndex
from codesdk.policy.schema.command_options import Commands
from codesdk.policy.schema.models import BundleFile, Rule
from codesdk.policy.schema.obligations import normalize
from codesdk.policy.shell.known_commands import extended_commands
from codesdk.policy.shell.unsafe_options import KnownCommands

MAX_RULES = 10_000


@dataclass(frozen=True)
class Finding:
    """A problem in a bundle, at a position."""

    file: str
    line: int
    column: int
    message: str
    fatal: bool = False
    """The bundle can't be used. Otherwise the finding is a warning."""


@dataclass(frozen=True)
class Bundle:
    """An immutable bundle. Bundles with the same hash decide the same."""

    name: str
    hash: str
    """`sha256:` over the rules' meaning; comments and layout don't count."""
    rules: tuple[CompiledRule, ...]
    default: Effect | None = None
    enabled: frozenset[str] = frozenset()
    broken: str = ""
    """Why every call is denied, if the bundle could not be read or all its rules have expired."""
    layers: tuple[str, ...] = ()
    """Hashes of the bundles that were merged, the shared one first; empty if this is not a merged bundle."""
    closed: frozenset[str] = frozenset()
    """Layers above which the default is deny: their rules can't allow anything on their own."""
    index: RuleIndex = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", RuleIndex(self.rules))

    def rule(self, rule_id: str) -> CompiledRule | None:
        """Return the rule with that id."""
        return next((rule for rule in self.rules if rule.id == rule_id), None)

    def on(self, day: date) -> Bundle:
        """Return the bundle for a day (UTC), without expired rules."""
        if not any(rule.expired(day) for rule in self.rules):
            return self
        rules = tuple(rule for rule in self.rules if not rule.expired(day))
        broken = self.broken or ("" if rules else f"Every rule of the policy bundle `{self.name}` has expired.")
        content = _hash(self.default, self.enabled, rules)
        return replace(self, rules=rules, broken=broken, hash=content_hash([content, *self.layers]))


def unreadable_bundle(reason: str) -> Bundle:
    """Return a bundle that denies every call with the reason, in place of one that could not be read."""
    return Bundle(name="unreadable", hash=bytes_hash(b""), rules=(), broken=reason)


def load_bundle(directory: Path, known_tools: Collection[str] | None, *, may_enable: bool = True) -> Bundle:
    """Load all `*.yaml` directly in `directory`. Subdirectories, such as tests, are not read.

    Args:
        directory: one bundle.
        known_tools: the tools that rules can name, by name, or only the names; then arguments are not checked. None for
            rules that were checked when they came into force: a tool that is removed later must not take rules with it.
        may_enable: the bundle can enable tools; a tenant's can't.

    Raises:
        PolicyInvalid: with all errors, each with file, line and column.
    """
    return make_bundle(read_bundle_texts(directory), known_tools, directory, may_enable=may_enable)


def make_bundle(
    sources: BundleTexts, known_tools: Collection[str] | None, directory: Path, *, may_enable: bool = True
) -> Bundle:
    """Compile a bundle from its texts. `directory` appears in messages, and is the bundle's name if no file sets one.

    Raises:
        PolicyInvalid: as `load_bundle`.
    """
    files = _parse_all({directory / name: text for name, text in sorted(rule_texts(sources).items())})
    if not files:
        raise _invalid(directory, Position(1, 1), "There is no policy file (`*.yaml`) in this directory.")
    names = [file.model.name for file in files if file.model.name]
    defaults = [file.model.default for file in files if file.model.default is not None]
    tools = ToolCatalog(known_tools) if known_tools is not None else None
    problems = [*_repeated(files, "name"), *_repeated(files, "default")]
    commands = extended_commands(_commands(files, problems))
    rules: dict[str, CompiledRule] = {}
    for file in files:
        problems += _wrongly_enabled(file, known_tools, may_enable=may_enable)
        for number, rule in enumerate(file.model.rules):
            try:
                compiled = _compile(file, number, rule, rules, commands)
            except PolicyInvalid as error:
                problems.append(error)
                continue
            rules[rule.id] = compiled
            for problem in rule_problems(compiled, tools) if tools is not None else ():
                place = file.document.place(("rules", number, *problem.path))
                problems.append(_invalid(file.path, place, f"The rule `{rule.id}` {problem.message}"))
    count = sum(len(file.model.rules) for file in files)
    if count > MAX_RULES:
        problems.append(_invalid(directory, Position(1, 1), f"The bundle has {count} rules; the limit is {MAX_RULES}."))
    if problems:
        raise PolicyInvalid.of_all(problems)
    default = defaults[0] if defaults else None
    enabled = frozenset(tool for file in files for tool in file.model.enable)
    return Bundle(
        name=(names[0] if names else None) or directory.name,
        hash=_hash(default, enabled, rules.values()),
        rules=tuple(rules.values()),
        default=default,
        enabled=enabled,
    )


def _hash(default: Effect | None, enabled: Collection[str], rules: Iterable[CompiledRule]) -> str:
    content = {"default": default, "enable": sorted(enabled), "rules": {rule.id: rule.hash for rule in rules}}
    return content_hash(content)


@dataclass(frozen=True)
class _File:
    path: Path
    document: Document
    model: BundleFile


def _invalid(path: Path, place: Position, message: str, suggestion: str | None = None) -> PolicyInvalid:
    return PolicyInvalid(str(path), place.line, place.column, message, suggestion)


def _parse_all(texts: Mapping[Path, str]) -> list[_File]:
    """Parse all files, and report the problems of all."""
    files, problems = [], list[PolicyInvalid]()
    for path, text in texts.items():
        try:
            files.append(_parse(path, text))
        except PolicyInvalid as error:
            problems.append(error)
    if problems:
        raise PolicyInvalid.of_all(problems)
    return files


def _parse(path: Path, text: str) -> _File:
    try:
        document = normalize(parse_document(text))
        return _File(path, document, document.model(BundleFile))
    except DocumentUnreadable as error:
        raise PolicyInvalid.of(path, error) from error


def _repeated(files: Iterable[_File], key: str) -> Iterator[PolicyInvalid]:
    """Yield the files that set a key of the bundle after another has set it."""
    setters = [file for file in files if getattr(file.model, key)]
    for file in setters[1:]:
        yield _invalid(file.path, file.document.place((key,)), f"`{key}` is already set in `{setters[0].path.name}`.")


def _wrongly_enabled(file: _File, known_tools: Collection[str] | None, *, may_enable: bool) -> Iterator[PolicyInvalid]:
    for number, tool in enumerate(file.model.enable):
        place = file.document.place(("enable", number))
        if not may_enable:
            said = f"A tenant's bundle cannot enable `{tool}`; only the shared one can."
            yield _invalid(file.path, place, said)
        elif known_tools is not None and tool not in known_tools:
            yield _invalid(file.path, place, f"There is no tool `{tool}` to enable.", nearest(tool, known_tools))


def _commands(files: Iterable[_File], problems: list[PolicyInvalid]) -> Commands:
    """Return the `commands` of all files. Adds a problem for each command that two files describe."""
    found: dict[str, Path] = {}
    commands: Commands = {}
    for file in files:
        for name, entry in file.model.commands.items():
            if name in found:
                message = f"The command `{name}` is already described in `{found[name].name}`."
                problems.append(_invalid(file.path, file.document.place(("commands", name)), message))
            found[name] = file.path
            commands[name] = entry
    return commands


def _compile(
    file: _File, number: int, rule: Rule, known: Mapping[str, CompiledRule], commands: KnownCommands
) -> CompiledRule:
    place = file.document.place(("rules", number))
    if (other := known.get(rule.id)) is not None:
        message = f"The rule `{rule.id}` is already defined in {other.file}:{other.line}."
        raise _invalid(file.path, file.document.place(("rules", number, "id")), message)
    try:
        compiled = compile_rule(rule, file.path.name, place.line, commands)
    except NotCanonical as error:
        raise _invalid(file.path, place, f"The rule `{rule.id}` cannot be hashed: {error.message}") from error
    failed = failed_example(compiled)
    if failed is not None:
        kind, at = failed
        said = "does not match" if kind == "match" else "matches"
        where = file.document.place(("rules", number, "examples", kind, at))
        raise _invalid(file.path, where, f"The rule `{rule.id}` {said} this example.")
    return compiled
