"""Models of a tool's manifest. `tool-registry/manifest.schema.json` is generated from them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from codesdk.domain.decisions import Classification, SandboxBounds
from codesdk.domain.model import FrozenModel
from codesdk.domain.tool_results import MAX_TOOL_NAME, TOOL_NAME

SecretName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,199}$")]


class Argument(FrozenModel):
    """A word of the command line that comes from the input: always one whole word, never parsed by a shell."""

    arg: Annotated[str, Field(pattern="^/")]
    """JSON pointer to a string, number or boolean. If the value is missing, the word is left out."""
    flag: str | None = None
    """A separate word in front of the value, if there is one."""
    may_be_option: bool = False
    """Allow a leading dash. Off by default, because otherwise the input could set the command's options."""


class Builtin(FrozenModel):
    """Run by CodeSDK itself, inside the sandbox."""

    builtin: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_.-]*$")]


class Template(FrozenModel):
    """Run as a command: a list of words, each written out or taken from the input."""

    argv: tuple[str | Argument, ...] = Field(min_length=1)
    stdin: Annotated[str, Field(pattern="^/")] | None = None
    """JSON pointer to text for standard input."""

    @model_validator(mode="after")
    def _check_command(self) -> Template:
        if not isinstance(self.argv[0], str):
            raise ValueError("the first word of `argv` is the command and cannot come from the input.")  # noqa: TRY004 (pydantic wants ValueError)
        return self


class SourceCall(FrozenModel):
    """Run by a third-party MCP server. Not written in manifests: it comes from a source's pinned tools."""

    source: str
    """Name of the tool source."""
    tool: str
    """The server's name for the tool."""


def _runs_kind(value: Any) -> str:
    """Discriminate the kinds of `runs`, so that errors refer to the intended one."""
    argv = "argv" in value if isinstance(value, dict) else isinstance(value, Template)
    return "template" if argv else "builtin"


Runs = Annotated[Annotated[Builtin, Tag("builtin")] | Annotated[Template, Tag("template")], Discriminator(_runs_kind)]


class Example(FrozenModel):
    """A call that must pass the tool's own schemas; run in tests."""

    description: str = ""
    files: dict[str, str] = {}
    """Files in the workspace before the call: path and text."""
    input: dict[str, Any]
    output: dict[str, Any] | None = None
    """The expected structured output, key by key."""
    varies: tuple[str, ...] = ()
    """Keys of the output that differ from run to run, such as times and durations."""


class Manifest(FrozenModel):
    """One tool."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="CodeSDK tool manifest")

    name: str = Field(max_length=MAX_TOOL_NAME)
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    title: str = Field(min_length=1, max_length=100)
    description: str = Field(min_length=1, max_length=4000)
    """For the model that calls the tool."""
    classification: Classification
    runs: Runs
    timeout_s: float = Field(default=60.0, gt=0, le=24 * 3600)
    """Upper bound on the wall time of one call, in seconds."""
    enabled: bool = True
    """If false, the tool is off until a policy bundle enables it."""
    serial: bool | None = None
    """Run one call at a time in a workspace. By default, true unless the tool is read-only."""
    profile: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")] | None = None
    """A profile whose bounds apply to each call, where they are tighter than the session's profile and policy. The call
    still runs in the session's sandbox.
    """
    sandbox: SandboxBounds = SandboxBounds()
    """Bounds on each call in the session's sandbox: output, memory, processes, files, hosts. They can only tighten the
    profile and the policy.
    """
    secrets: tuple[SecretName, ...] = Field(default=(), max_length=8)
    """Names of secrets that the tool needs. The egress proxy adds them to this tool's requests as the profile's rules say,
    and to no other tool's.
    """
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    examples: tuple[Example, ...] = ()

    @field_validator("name")
    @classmethod
    def _check_name(cls, value: str) -> str:
        if TOOL_NAME.fullmatch(value) is None:
            raise ValueError("a tool's name is lower case words joined by dots: `workspace.read`.")
        return value


def manifest_schema() -> dict[str, Any]:
    """Return the JSON Schema of a manifest, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema(by_alias=True)}
