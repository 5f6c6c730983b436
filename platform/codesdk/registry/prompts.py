"""Prompts: texts with blanks that people choose in their agent's client. Written in YAML, in `prompts/` beside the manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from codesdk.documents import DocumentUnreadable, read_document
from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault
from codesdk.registry.faults import ManifestInvalid

PROMPTS_FOLDER = "prompts"
MAX_PROMPTS = 200
"""Prompts of one directory."""
MAX_TEXT_CHARACTERS = 64 * 1024
"""Characters of one message as it is written."""
MAX_VALUE_CHARACTERS = 16 * 1024
"""Characters of a value for a blank."""
MAX_VALUES = 100
"""Values that can be offered for one blank: as many as one answer of MCP holds."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z][a-z0-9_]*)\}|[{}]")
_ESCAPED_BRACES = {"{{": "{", "}}": "}"}


class Role(StrEnum):
    """Who says a message."""

    USER = "user"
    ASSISTANT = "assistant"


class PromptArgument(FrozenModel):
    """An argument: what stands for `{name}` in the messages."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    title: str | None = Field(default=None, max_length=200)
    description: str | None = Field(default=None, max_length=1000)
    required: bool = False
    default: str = Field(default="", max_length=MAX_VALUE_CHARACTERS)
    """What stands there where nothing is given."""
    values: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=MAX_VALUES)] = ()
    """What clients offer while somebody types; others may be given as well."""


class PromptMessage(FrozenModel):
    """One message. `{name}` is a blank; a brace of the text itself is written twice."""

    role: Role = Role.USER
    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)

    @field_validator("text")
    @classmethod
    def _check_braces(cls, given: str) -> str:
        for found in _PLACEHOLDER.finditer(given):
            if found[0] in ("{", "}"):
                raise ValueError(f"a single `{found[0]}` stands for nothing: write it twice, or a blank as {{name}}")
        return given

    def placeholders(self) -> set[str]:
        """The names in it."""
        return {found[1] for found in _PLACEHOLDER.finditer(self.text) if found[1]}

    def render(self, values: Mapping[str, str]) -> str:
        """Its text. Filled in one pass: braces in a value stay what they are."""
        return _PLACEHOLDER.sub(lambda found: values[found[1]] if found[1] else _ESCAPED_BRACES[found[0]], self.text)


class Prompt(FrozenModel):
    """One prompt, as its file has it."""

    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    title: str | None = Field(default=None, max_length=200)
    description: str | None = Field(default=None, max_length=2000)
    arguments: Annotated[tuple[PromptArgument, ...], Field(max_length=20)] = ()
    messages: Annotated[tuple[PromptMessage, ...], Field(min_length=1, max_length=20)]

    @field_validator("arguments")
    @classmethod
    def _check_names(cls, given: tuple[PromptArgument, ...]) -> tuple[PromptArgument, ...]:
        if len({blank.name for blank in given}) != len(given):
            raise ValueError("two arguments have one name")
        return given

    def render(self, given: Mapping[str, str]) -> list[tuple[Role, str]]:
        """The messages.

        Raises:
            PromptArgumentWrong: one is missing, unknown or too long.
        """
        known = {blank.name: blank for blank in self.arguments}
        if unknown := sorted(set(given) - set(known)):
            raise InvalidPromptArgument(f"The prompt {self.name} has no argument {unknown[0][:64]!r}.")
        for name, blank in known.items():
            if blank.required and not given.get(name):
                raise InvalidPromptArgument(f"The prompt {self.name} needs the argument {name!r}.")
            if len(given.get(name, "")) > MAX_VALUE_CHARACTERS:
                raise InvalidPromptArgument(f"The argument {name!r} has more than {MAX_VALUE_CHARACTERS} characters.")
        values = {name: given.get(name, blank.default) for name, blank in known.items()}
        return [(message.role, message.render(values)) for message in self.messages]


class InvalidPromptArgument(Fault):
    """A prompt cannot be filled with what was given."""

    code = "PROMPT_ARGUMENT_WRONG"
    status = 422
    exit_code = ExitCode.DATA


def prompt_files(directory: Path) -> list[Path]:
    """The files that hold a prompt each, in order."""
    return sorted((directory / PROMPTS_FOLDER).glob("*.yaml"))


def read_prompts(directory: Path, taken: Iterable[str] = ()) -> tuple[Prompt, ...]:
    """The prompts beside a directory's manifests. `taken`: names that none may have.

    Raises:
        ManifestInvalid: with file, line and column of the first thing that is wrong.
    """
    paths = prompt_files(directory)
    if len(paths) > MAX_PROMPTS:
        raise ManifestInvalid(
            str(directory / PROMPTS_FOLDER), 1, 1, f"There are {len(paths)} prompts; at most {MAX_PROMPTS} are read."
        )
    found: dict[str, Prompt] = {}
    for path in paths:
        prompt = _read(path)
        if prompt.name in found or prompt.name in taken:
            raise ManifestInvalid(str(path), 1, 1, f"There is another prompt `{prompt.name}`.")
        found[prompt.name] = prompt
    return tuple(found.values())


def _read(path: Path) -> Prompt:
    try:
        document = read_document(path)
        prompt = document.model(Prompt)
    except DocumentUnreadable as error:
        raise ManifestInvalid.of(path, error) from error
    known = {blank.name for blank in prompt.arguments}
    for number, message in enumerate(prompt.messages):
        if missing := sorted(message.placeholders() - known):
            place = document.place(("messages", number, "text"))
            raise ManifestInvalid(str(path), place.line, place.column, f"`{missing[0]}` is no argument of this prompt.")
    return prompt
