"""Models of a bundle's YAML files. `policies/policy.schema.json` is generated from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator

from codesdk.domain.decisions import Classification, Effect, GrantKind, GroupName, Obligations, PermissionMode
from codesdk.domain.model import FrozenModel
from codesdk.policy.schema import obligations
from codesdk.policy.schema.command_options import Commands
from codesdk.policy.schema.conditions import check_condition
from codesdk.policy.schema.host_patterns import host_pattern
from codesdk.policy.schema.path_patterns import argument_pattern, path_pattern
from codesdk.tenancy.principal import Role

_DURATION = re.compile(r"([1-9][0-9]{0,5})(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SHELL_TOOL = "workspace.exec"


def _seconds(value: Any) -> Any:
    """Parse `30s`, `10m`, `2h`, `1d`, or a number of seconds."""
    if isinstance(value, str):
        match = _DURATION.fullmatch(value)
        if match is None:
            raise ValueError("a duration is a number of seconds, or a number with s, m, h or d: `10m`.")
        return int(match[1]) * _UNITS[match[2]]
    return value


def _as_list(value: Any) -> Any:
    """Accept a single value as a list of one."""
    return value if isinstance(value, list | tuple) or value is None else [value]


def _pointer(value: str) -> str:
    if not value.startswith("/"):
        raise ValueError(f"an argument is named by a JSON pointer: `/{value}`.")
    return value


def _folder(value: str) -> str:
    parts = value.rstrip("/").split("/")
    if value.startswith(("/", "~")) or ".." in parts:
        raise ValueError(f"a folder is named relative to the workspace, without `..`: `{value}`.")
    return "/".join(part for part in parts if part not in ("", ".")) or "."


Duration = Annotated[int, BeforeValidator(_seconds, json_schema_input_type=int | str), Field(ge=1, le=7 * 86400)]
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256)], ...],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
    Field(min_length=1),
]
Classes = Annotated[
    tuple[Classification, ...],
    BeforeValidator(_as_list, json_schema_input_type=Classification | list[Classification]),
    Field(min_length=1),
]
Modes = Annotated[
    tuple[PermissionMode, ...],
    BeforeValidator(_as_list, json_schema_input_type=PermissionMode | list[PermissionMode]),
    Field(min_length=1),
]
Roles = Annotated[
    tuple[Role, ...],
    BeforeValidator(_as_list, json_schema_input_type=Role | list[Role]),
    Field(min_length=1),
]
Folders = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_folder)], ...],
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
]
Hosts = Annotated[Names, AfterValidator(lambda names: tuple(host_pattern(name) for name in names))]
Paths = Annotated[Names, AfterValidator(lambda names: tuple(path_pattern(name) for name in names))]
Arguments = Annotated[Names, AfterValidator(lambda names: tuple(argument_pattern(name) for name in names))]
Pointer = Annotated[str, AfterValidator(_pointer)]
Scalar = str | int | float | bool | None
Identifier = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]


_GLOB = re.compile(r"[*?]|\[[^\]]+\]")


class GlobToken(FrozenModel):
    """A word of a command by pattern: `{glob: "tests/*"}`."""

    glob: str


PatternToken = str | GlobToken | list[str]
"""A word, a glob, or a list of alternative words. `...` at the end matches any further arguments."""


class CommandMatcher(FrozenModel):
    """Which shell commands. To allow, every command of the line must be covered; to ask or deny, one is enough."""

    any_of: tuple[Annotated[list[PatternToken], Field(min_length=1)], ...] = Field(min_length=1)
    any_flag: tuple[str, ...] = ()
    """The command has one of these options, in any spelling: `-rf` includes `-f`, and `--forc` is `--force`."""
    forbid_flags: tuple[str, ...] = ()
    """The command has none of these options."""
    env: tuple[str, ...] = ()
    """Variables that may be set in front of an allowed command."""
    trust_arguments: bool = False
    """Let `...` of an allow rule also cover options that run programs or write files (`rg --pre`, `find -exec`)."""
    programs_in: Folders = ()
    """Folders of the workspace, or patterns for them (`*/.venv/bin`): an allow rule on `pytest` also covers
    `.venv/bin/pytest`. Whoever can write there decides what the program is."""
    write_beneath: Folders = ()
    """Folders of the workspace into which the output of an allowed command may be redirected; `.` is all of it, without
    `.git`."""
    background: bool = False
    """Let an allow rule also cover the command in the background: `pytest &`."""
    arguments: Arguments | None = None
    """Of an allow rule: everything that `...` covers is one of these options and paths (`-n`, `src/**`)."""

    @model_validator(mode="after")
    def _check_rest(self) -> CommandMatcher:
        for pattern in self.any_of:
            if "..." in pattern[:-1] or pattern[0] == "...":
                raise ValueError("`...` stands only at the end of a pattern, after the command.")
            if any(isinstance(token, list) and not token for token in pattern):
                raise ValueError("a list of alternatives needs at least one word.")
            if self.arguments is not None and pattern[-1] != "...":
                raise ValueError("`arguments` lists what `...` may cover; end each pattern with `...`.")
            for token in pattern:
                _check_plain_words([token] if isinstance(token, str) else token if isinstance(token, list) else [])
        return self


def looks_like_pattern(word: str) -> bool:
    """Return whether a plain word reads like a glob."""
    return _GLOB.search(word) is not None


def _check_plain_words(words: Iterable[str]) -> None:
    """Refuse a word that is written like a pattern: it would match only itself, and a deny would silently do nothing."""
    for word in words:
        if looks_like_pattern(word):
            raise ValueError(
                f"`{word}` is a plain word, which matches only itself. Write {{glob: {json.dumps(word)}}} for a pattern (in a "
                "pattern of its own if it stands in a list of alternatives), and `[*]` or `[?]` in it for the character itself."
            )


class ArgumentTest(FrozenModel):
    """What must hold of one argument; all keys together."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    eq: Scalar = None
    in_: tuple[Scalar, ...] | None = Field(default=None, alias="in")
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    glob: Names | None = None
    """The text matches one of these patterns (`*`, `?`, `[…]`; `*` also matches `/`)."""
    beneath: Names | None = None
    """The path is one of these or below it, relative to the workspace (`.`) and without following links."""
    host: Hosts | None = None
    """The URL's host, or the bare host, is one of these. `*.example.com` matches every name below example.com."""
    exists: bool | None = None

    @model_validator(mode="after")
    def _check_not_empty(self) -> ArgumentTest:
        if not self.model_fields_set:
            raise ValueError("this tests nothing; write one of eq, in, gt, ge, lt, le, glob, beneath, host, exists.")
        return self


class PathMatcher(FrozenModel):
    """Which paths, in any argument of a call. To ask or deny, one path that may match is enough."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    any_of: Paths
    """Names (`.env*`, `*.pem`) or paths (`.docker/config.json`) at any depth, or from the root on (`/etc/shadow`). Upper and
    lower case are the same, and what is beneath a match matches."""
    except_: Paths | None = Field(default=None, alias="except")
    """Paths that don't match although they are among `any_of`."""


class Matcher(FrozenModel):
    """Conditions on a call; all that are written must hold."""

    tool: Names | None = None
    """Dotted names or patterns, such as `workspace.*`."""
    server: Names | None = None
    """The first part of the tool's dotted name, or a pattern for it."""
    classification: Classes | None = None
    tenant: Names | None = None
    principal: Names | None = None
    roles: Roles | None = None
    """The principal has at least one of these roles."""
    labels: dict[str, Names] | None = None
    """The session has each of these labels, with a value that matches one of the patterns."""
    mode: Modes | None = None
    runtime: Names | None = None
    args: dict[Pointer, ArgumentTest] | None = None
    command: CommandMatcher | None = None
    paths: PathMatcher | None = None
    when: Annotated[str, AfterValidator(check_condition)] | None = None
    """A condition in CEL over `args`, `tool.name`, `tool.classification`, `principal.id`, `principal.roles`,
    `session.id`, `session.tenant`, `session.mode`, `session.runtime` and `session.labels`."""


class Example(FrozenModel):
    """A call that a rule must, or must not, match."""

    tool: str = _SHELL_TOOL
    input: dict[str, Any]
    classification: Classification | None = None
    roles: tuple[str, ...] = ()
    labels: dict[str, str] = {}
    mode: PermissionMode = PermissionMode.AUTO
    principal: str = "someone"
    runtime: str = "mcp-client"
    tenant: str = "ten_example"


def _from_line(value: Any) -> Any:
    """Convert a string to an example with a shell line."""
    return {"input": {"command": value}} if isinstance(value, str) else value


ExampleOrLine = Annotated[Example, BeforeValidator(_from_line, json_schema_input_type=str | Example)]


class Examples(FrozenModel):
    """Checked whenever the bundle is loaded."""

    match: tuple[ExampleOrLine, ...] = ()
    no_match: tuple[ExampleOrLine, ...] = ()


class Escalate(FrozenModel):
    """Others who may answer too, after a time."""

    after: Duration
    """Seconds after the approval was requested."""
    to: GroupName
    """The group whose members may then vote."""


class Approval(FrozenModel):
    """What an `ask` needs."""

    group: GroupName | None = None
    """The group whose members may vote; by default, any approver of the tenant."""
    quorum: int = Field(default=1, ge=1, le=10)
    """Number of approvals required. If more than one, only people count."""
    not_requester: bool = False
    """The session's principal and programs can't vote."""
    timeout: Duration = 600
    """Seconds until the approval expires."""
    on_timeout: Literal["deny"] = "deny"
    """What happens to the call then. The only value."""
    preview: bool = False
    """Make a dry run before asking, and show its effects. Only calls that write files or run commands have one."""
    escalate: Escalate | None = None

    @model_validator(mode="after")
    def _check_escalation(self) -> Approval:
        if self.escalate is None:
            return self
        if self.group is None:
            raise ValueError(
                "`escalate` adds approvers to those of `group`; without a group, everyone can approve already."
            )
        if self.escalate.to == self.group:
            raise ValueError(f"`escalate` goes to `{self.group}`, which can approve already.")
        if self.escalate.after >= self.timeout:
            raise ValueError(
                f"`escalate` comes after {self.escalate.after} s, and the approval expires after {self.timeout} s."
            )
        return self


Kinds = Annotated[
    tuple[GrantKind, ...],
    BeforeValidator(_as_list, json_schema_input_type=GrantKind | list[GrantKind]),
    Field(min_length=1),
]


class Grant(FrozenModel):
    """What an approver may give beyond the one call that they see."""

    offer: Kinds
    """`once`, `session`, `until`; `once` is always available."""
    max_ttl: Annotated[int, BeforeValidator(_seconds, json_schema_input_type=int | str), Field(ge=1, le=30 * 86400)] = (
        8 * 3600
    )
    """Maximum lifetime of a grant, in seconds."""
    max_uses: int | None = Field(default=None, ge=1, le=100_000)
    """Maximum number of calls; unlimited if None."""


class Rule(Matcher):
    """One rule. All rules that match count, and the strictest effect wins; the order in the file means nothing."""

    id: Identifier
    effect: Effect
    reason: str = Field(default="", max_length=500)
    """One sentence for the agent and its user."""
    unless: Matcher | None = None
    """The rule does not match if this matches."""
    examples: Examples = Examples()
    approval: Approval | None = None
    grant: Grant | None = None
    obligations: Obligations = Obligations()
    auto_ok: bool = False
    """The ask becomes an allow in the mode `auto`."""
    floor: bool = False
    """The ask stays an ask in the mode `yolo`."""
    any_command: bool = False
    """The allow also covers commands that can't be read, unless another rule of the tool looks at its input."""
    owner: str = Field(default="", max_length=120)
    """The contact for the rule."""
    expires: date | None = None
    """The last day (UTC) on which the rule applies. An expired rule is ignored."""
    absent_ok: bool = False
    """The tools and servers that the rule names may be missing from the installation."""

    @model_validator(mode="after")
    def _check_effect_fields(self) -> Rule:
        if self.effect is not Effect.ASK:
            for key in ("approval", "grant", "auto_ok", "floor"):
                if key in self.model_fields_set:
                    raise ValueError(f"`{key}` belongs to a rule with `effect: ask`.")
        if self.effect is not Effect.ALLOW and self.command is not None and self.command.arguments is not None:
            raise ValueError(
                f"`arguments` belongs to an allow or an `unless`. To {self.effect} by path, write `paths` next to `command`."
            )
        if self.auto_ok and self.floor:
            raise ValueError("`auto_ok` and `floor` contradict each other.")
        several = self.approval is not None and self.approval.quorum > 1
        if self.grant is not None and several and set(self.grant.offer) != {GrantKind.ONCE}:
            raise ValueError("only a single approver can give a grant; with a `quorum`, offer only `once`.")
        if self.grant is not None and self.floor:
            raise ValueError("`grant` and `floor` contradict each other: no grant lets a call past a floor.")
        return self

    @model_validator(mode="after")
    def _check_any_command(self) -> Rule:
        if self.any_command and self.effect is not Effect.ALLOW:
            raise ValueError("`any_command` belongs to a rule with `effect: allow`.")
        narrower = [key for key in ("command", "args", "paths", "when", "unless") if getattr(self, key)]
        if self.any_command and narrower:
            raise ValueError(f"`any_command` covers every input, and `{narrower[0]}` only some: leave out one of them.")
        return self


class BundleFile(FrozenModel):
    """One file of a bundle. A bundle is a directory; `name` and `default` stand in one of its files."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="CodeSDK policy file")

    version: Literal[1]
    name: Identifier | None = None
    description: str = ""
    default: Effect | None = None
    """The effect if no rule matches; deny if None."""
    enable: tuple[str, ...] = ()
    """Tools to enable that their manifests disable."""
    commands: Commands = {}
    """What the bundle knows about commands beyond the packaged list: options that run or write, which `...` doesn't cover."""
    rules: tuple[Rule, ...] = ()


def policy_schema() -> dict[str, Any]:
    """Return the JSON Schema of a policy file, for editors."""
    found = BundleFile.model_json_schema(by_alias=True)
    obligations.extend_schema(found["$defs"]["SandboxBounds"], found["$defs"]["Rate"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}
