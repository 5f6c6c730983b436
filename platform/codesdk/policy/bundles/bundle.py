"""Policy bundles: directories of YAML files, loaded whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from codesdk.documents import Document, DocumentUnreadable, Position, nearest, parse_document
from codesdk.domain.canonical import NotCanonical, bytes_hash, content_hash
from codesdk.domain.decisions import Effect
from codesdk.policy.bundles.bundle_files import BundleTexts, read_bundle_texts, rule_texts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.matching.argument_conditions import glob_matcher
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
    findings: tuple[Finding, ...] = ()
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


def load_bundle(directory: Path, known_tools: Collection[str]) -> Bundle:
    """Load all `*.yaml` directly in `directory`. Subdirectories, such as tests, are not read.

    Args:
        directory: one bundle.
        known_tools: dotted names from the registry; an unknown name in a rule is a finding, in `enable:` an error.

    Raises:
        PolicyInvalid: with file, line and column of the first error.
    """
    return make_bundle(read_bundle_texts(directory), known_tools, directory)


def make_bundle(sources: BundleTexts, known_tools: Collection[str], directory: Path) -> Bundle:
    """Compile a bundle from its texts. `directory` appears in messages, and is the bundle's name if no file sets one.

    Raises:
        PolicyInvalid: as `load_bundle`.
    """
    files = _parse_all({directory / name: text for name, text in sorted(rule_texts(sources).items())})
    if not files:
        raise _invalid(directory, Position(1, 1), "There is no policy file (`*.yaml`) in this directory.")
    names = [(file.name, place) for file, place in ((f.model, f) for f in files) if file.name]
    defaults = [file for file in files if file.model.default is not None]
    for label, found in (("name", [file for _, file in names]), ("default", defaults)):
        if len(found) > 1:
            raise _invalid(
                found[1].path, found[1].document.place((label,)), f"`{label}` is already set in `{found[0].path.name}`."
            )
    commands = extended_commands(_commands(files))
    findings: list[Finding] = []
    rules: dict[str, CompiledRule] = {}
    for file in files:
        _check_enabled(file, known_tools)
        for number, rule in enumerate(file.model.rules):
            place = file.document.place(("rules", number))
            if rule.id in rules:
                known = rules[rule.id]
                raise _invalid(
                    file.path,
                    file.document.place(("rules", number, "id")),
                    f"The rule `{rule.id}` is already defined in {known.file}:{known.line}.",
                )
            rules[rule.id] = _compile(file, number, rule, place, commands)
            findings.extend(_unknown_tools(file, number, rule, known_tools))
    if len(rules) > MAX_RULES:
        raise _invalid(directory, Position(1, 1), f"The bundle has {len(rules)} rules; the limit is {MAX_RULES}.")
    default = defaults[0].model.default if defaults else None
    enabled = frozenset(tool for file in files for tool in file.model.enable)
    return Bundle(
        name=(names[0][0] if names else None) or directory.name,
        hash=_hash(default, enabled, rules.values()),
        rules=tuple(rules.values()),
        default=default,
        enabled=enabled,
        findings=tuple(findings),
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
            problems += [error, *error.others]
    if problems:
        problems[0].others = tuple(problems[1:])
        raise problems[0]
    return files


def _parse(path: Path, text: str) -> _File:
    try:
        document = normalize(parse_document(text))
        return _File(path, document, document.model(BundleFile))
    except DocumentUnreadable as error:
        raise PolicyInvalid.of(path, error) from error


def _check_enabled(file: _File, known_tools: Collection[str]) -> None:
    for number, tool in enumerate(file.model.enable):
        if tool not in known_tools:
            place = file.document.place(("enable", number))
            raise _invalid(file.path, place, f"There is no tool `{tool}` to enable.", nearest(tool, known_tools))


def _commands(files: Iterable[_File]) -> Commands:
    """Return what all files know about commands; each command stands in one of them."""
    found: dict[str, Path] = {}
    commands: Commands = {}
    for file in files:
        for name, entry in file.model.commands.items():
            if name in found:
                place = file.document.place(("commands", name))
                raise _invalid(file.path, place, f"The command `{name}` is already described in `{found[name].name}`.")
            found[name] = file.path
            commands[name] = entry
    return commands


def _compile(file: _File, number: int, rule: Rule, place: Position, commands: KnownCommands) -> CompiledRule:
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


def _unknown_tools(file: _File, number: int, rule: Rule, known_tools: Collection[str]) -> Iterator[Finding]:
    for tool in rule.tool or ():
        if tool in known_tools or (
            re.search(r"[*?\[]", tool) and any(glob_matcher((tool,))(name) for name in known_tools)
        ):
            continue
        servers = {name.partition(".")[0] + ".*" for name in known_tools}
        near = nearest(tool, servers if tool.endswith(".*") else known_tools)
        place = file.document.place(("rules", number, "tool"))
        hint = f" Did you mean `{near}`?" if near else ""
        yield Finding(
            str(file.path),
            place.line,
            place.column,
            f"The rule `{rule.id}` names the unknown tool `{tool}`.{hint}",
        )
    known_servers = {name.partition(".")[0] for name in known_tools}
    for server in rule.server or ():
        if not any(glob_matcher((server,))(name) for name in known_servers):
            near = nearest(server, known_servers)
            place = file.document.place(("rules", number, "server"))
            hint = f" Did you mean `{near}`?" if near else ""
            said = f"The rule `{rule.id}` names the unknown server `{server}`.{hint}"
            yield Finding(str(file.path), place.line, place.column, said)
