"""Prompts: message templates for people to choose in their agent's client, from YAML files in `prompts/`."""

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
"""Prompts in one directory."""
MAX_TEXT_CHARACTERS = 64 * 1024
"""Characters of one message template."""
MAX_VALUE_CHARACTERS = 16 * 1024
"""Characters of an argument's value."""
MAX_VALUES = 100
"""Suggested values of one argument. One MCP answer holds as many."""

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([a-z][a-z0-9_]*)\}|[{}]")
_ESCAPED_BRACES = {"{{": "{", "}}": "}"}


class Role(StrEnum):
    """The role of a message's author."""

    USER = "user"
    ASSISTANT = "assistant"


class PromptArgument(FrozenModel):
    """An argument, which replaces `{name}` in the messages."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    title: str | None = Field(default=None, max_length=200)
    description: str | None = Field(default=None, max_length=1000)
    required: bool = False
    default: str = Field(default="", max_length=MAX_VALUE_CHARACTERS)
    """The value if none is given."""
    values: Annotated[tuple[Annotated[str, Field(max_length=200)], ...], Field(max_length=MAX_VALUES)] = ()
    """Suggestions for completion in clients. Other values are accepted too."""


class PromptMessage(FrozenModel):
    """A message template. `{name}` is a placeholder; literal braces are doubled."""

    role: Role = Role.USER
    text: str = Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)

    @field_validator("text")
    @classmethod
    def _check_braces(cls, given: str) -> str:
        for found in _PLACEHOLDER.finditer(given):
            if found[0] in ("{", "}"):
                raise ValueError(f"a single `{found[0]}` is not a placeholder: double it, or write {{name}}")
        return given

    def placeholders(self) -> set[str]:
        """Return the placeholders' names."""
        return {found[1] for found in _PLACEHOLDER.finditer(self.text) if found[1]}

    def render(self, values: Mapping[str, str]) -> str:
        """Fill in the placeholders in one pass, so braces in a value stay unchanged."""
        return _PLACEHOLDER.sub(lambda found: values[found[1]] if found[1] else _ESCAPED_BRACES[found[0]], self.text)


class Prompt(FrozenModel):
    """A prompt file."""

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
            raise ValueError("two arguments have the same name")
        return given

    def render(self, given: Mapping[str, str]) -> list[tuple[Role, str]]:
        """Return the messages with the arguments filled in.

        Raises:
            InvalidPromptArgument: an argument is missing, unknown or too long.
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
    """The prompt's arguments are missing, unknown or too long."""

    code = "PROMPT_ARGUMENT_WRONG"
    status = 422
    exit_code = ExitCode.DATA


def prompt_files(directory: Path) -> list[Path]:
    """Return the prompt files of a directory, sorted."""
    return sorted((directory / PROMPTS_FOLDER).glob("*.yaml"))


def read_prompts(directory: Path, taken: Iterable[str] = ()) -> tuple[Prompt, ...]:
    """Read the prompts of a directory. `taken`: names that are in use already.

    Raises:
        ManifestInvalid: with file, line and column of the first error.
    """
    paths = prompt_files(directory)
    if len(paths) > MAX_PROMPTS:
        raise ManifestInvalid(
            str(directory / PROMPTS_FOLDER), 1, 1, f"There are {len(paths)} prompts; the limit is {MAX_PROMPTS}."
        )
    found: dict[str, Prompt] = {}
    for path in paths:
        prompt = _read(path)
        if prompt.name in found or prompt.name in taken:
            raise ManifestInvalid(str(path), 1, 1, f"Another prompt is named `{prompt.name}`.")
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
            raise ManifestInvalid(
                str(path), place.line, place.column, f"`{missing[0]}` is not an argument of this prompt."
            )
    return prompt
