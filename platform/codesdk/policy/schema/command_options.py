"""Model of what is known about a command's arguments: which options write or run, and how the command reads them.

The same model describes `shell/known_commands.yaml` and `commands:` in a bundle.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from codesdk.domain.model import FrozenModel

_OPTION = re.compile(r"-[^\s=]+")
_HARMLESS = re.compile(r"(-[^\s=]+)(?:=(.+))?", re.DOTALL)
_NAME = re.compile(r"[^\s/=-][^\s/]{0,63}")


class ArgumentEffect(StrEnum):
    """What an argument makes a command do."""

    RUNS = "runs"
    """Runs code: a program, a script, a plugin."""
    WRITES = "writes"
    """Writes a file that it names."""
    DELETES = "deletes"
    CONFIGURES = "configures"
    """Reads configuration that can run code or choose files to write."""
    NETWORK = "network"
    """Sends or fetches data."""


def _split(value: Any) -> Any:
    """Accept words in one string, which is also much faster to parse than a list."""
    return value.split() if isinstance(value, str) else value


def _option(value: str) -> str:
    if not _OPTION.fullmatch(value):
        raise ValueError(f"`{value}` is not an option; write it as `-x` or `--long`, without its value.")
    return value


def _harmless(value: str) -> str:
    if not _HARMLESS.fullmatch(value):
        raise ValueError(f"`{value}` is not an option; write `--long`, or with a pattern for its value `--long=no:*`.")
    return value


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f"`{value}` is not the name of a command; write it without path and arguments.")
    return value


def _from_effect(value: Any) -> Any:
    """Convert `install: runs` to `install: {does: runs}`."""
    return {"does": value} if isinstance(value, str) else value


Option = Annotated[str, AfterValidator(_option)]
OptionNames = Annotated[tuple[Option, ...], BeforeValidator(_split, json_schema_input_type=str | list[str])]
Harmless = Annotated[
    tuple[Annotated[str, AfterValidator(_harmless)], ...],
    BeforeValidator(_split, json_schema_input_type=str | list[str]),
]
CommandName = Annotated[str, AfterValidator(_name)]
CommandNames = Annotated[tuple[CommandName, ...], BeforeValidator(_split, json_schema_input_type=str | list[str])]


class CommandOptions(FrozenModel):
    """The arguments of a command or subcommand. A subcommand also has the options of the command that it belongs to."""

    also: CommandNames = ()
    """Other names of the same command or subcommand, or others with the same options."""
    runs: OptionNames = ()
    """Options that run code: a program, a script, a plugin."""
    writes: OptionNames = ()
    """Options that write a file."""
    deletes: OptionNames = ()
    """Options that delete files."""
    configures: OptionNames = ()
    """Options that read configuration which can run code or choose files to write."""
    network: OptionNames = ()
    """Options that send or fetch data."""
    harmless: Harmless = ()
    """Options that `...` covers although they are listed above; with a value (`-p=no:*`), only for values that match the
    pattern."""
    values: OptionNames = ()
    """Options that take a value, in the next word or attached to a short option."""
    flags: OptionNames = ()
    """Options without a value. After any option that is neither here nor in `values`, both readings are tried. An option in
    either is no abbreviation of a listed one."""
    abbreviated: bool | None = None
    """Long options can be abbreviated (`--baset`). True if omitted."""
    single_dash: bool | None = None
    """Long options may have one dash (`-exec`). False if omitted."""
    clusters: bool | None = None
    """Short options can be combined (`-xvf`). True if omitted, unless long options have a single dash."""
    until_operand: bool | None = None
    """Options end at the first operand; what follows belongs to the program that it names. False if omitted."""
    at_files: bool | None = None
    """An operand `@file` stands for the arguments in that file. False if omitted."""
    arguments: ArgumentEffect | None = None
    """What every argument does, for a command that runs or interprets all of them."""
    no_operand: ArgumentEffect | None = None
    """What the command does without an operand or with `-`, such as running its standard input."""
    does: ArgumentEffect | Literal["nothing"] | None = None
    """What the subcommand itself does."""
    unless: OptionNames = ()
    """Options with which `does` and `no_operand` don't apply, such as `--check`."""
    command_at: int | None = Field(default=None, ge=1, le=9)
    """The number of the operand that is a command which it runs; the rest are that command's arguments."""
    command_options: OptionNames = ()
    """Options whose value is such a command: `-m` in `python -m pytest`."""
    subcommands: dict[CommandName, Subcommand] = {}
    unlisted: ArgumentEffect | None = None
    """What subcommands do that are not listed; nothing if omitted."""

    @model_validator(mode="after")
    def _check_effects(self) -> Self:
        seen: dict[str, ArgumentEffect] = {}
        for effect in ArgumentEffect:
            for option in self.options(effect):
                if option in seen:
                    raise ValueError(f"`{option}` is listed under both `{seen[option]}` and `{effect}`; keep one.")
                seen[option] = effect
        both = set(self.values) & set(self.flags)
        if both:
            raise ValueError(f"`{min(both)}` is listed under both `values` and `flags`; keep one.")
        return self

    def options(self, effect: ArgumentEffect) -> tuple[str, ...]:
        """Return the options that are listed with an effect."""
        listed: tuple[str, ...] = getattr(self, effect.value)
        return listed


Subcommand = Annotated[CommandOptions, BeforeValidator(_from_effect, json_schema_input_type=str | dict[str, Any])]
Commands = dict[CommandName, CommandOptions]


class CommandsFile(FrozenModel):
    """The file with the commands that are known without a bundle."""

    version: Literal[1]
    commands: Commands


def harmless_parts(text: str) -> tuple[str, str | None]:
    """Return the option of a `harmless` item, and the pattern for its value, if it has one."""
    match = _HARMLESS.fullmatch(text)
    if match is None:  # the model has checked it
        raise AssertionError(text)
    return match[1], match[2]
