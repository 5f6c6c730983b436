"""What may stand in a tool's manifest. `tool-registry/manifest.schema.json` is made from these models."""

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
    """JSON pointer to a string, number or boolean; a missing value leaves the word out."""
    flag: str | None = None
    """Put in front, as a word of its own, where the value is there."""
    may_be_option: bool = False
    """Let the value begin with a dash. Off, because then the input could switch the command's options."""


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
    """Run by somebody else's MCP server. No manifest of a tool says this: it comes from what was accepted of a source."""

    source: str
    """The source's name."""
    tool: str
    """The server's own name for it."""


def _runs_kind(value: Any) -> str:
    """Which way of running is meant, so that a mistake is told about that one."""
    argv = "argv" in value if isinstance(value, dict) else isinstance(value, Template)
    return "template" if argv else "builtin"


Runs = Annotated[Annotated[Builtin, Tag("builtin")] | Annotated[Template, Tag("template")], Discriminator(_runs_kind)]


class Example(FrozenModel):
    """A call that must pass the tool's own schemas; run in tests."""

    description: str = ""
    files: dict[str, str] = {}
    """What the workspace holds before it: path and text."""
    input: dict[str, Any]
    output: dict[str, Any] | None = None
    """The structured output, key by key."""
    varies: tuple[str, ...] = ()
    """Keys of the output whose value differs from run to run: times, durations."""


class Manifest(FrozenModel):
    """One tool."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="CodeSDK tool manifest")

    name: str = Field(max_length=MAX_TOOL_NAME)
    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+$")]
    title: str = Field(min_length=1, max_length=100)
    description: str = Field(min_length=1, max_length=4000)
    """For the model that calls it."""
    classification: Classification
    runs: Runs
    timeout_s: float = Field(default=60.0, gt=0, le=24 * 3600)
    """Upper bound on the wall time of one call, seconds."""
    enabled: bool = True
    """False: only a policy bundle can switch it on."""
    serial: bool | None = None
    """One call at a time in a workspace; by default where the tool is not read-only."""
    profile: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,39}$")] | None = None
    """Name of a sandbox profile: each of its calls is held to that profile's bounds, where the session's own profile and
    policy are not tighter. It runs in the session's sandbox all the same."""
    sandbox: SandboxBounds = SandboxBounds()
    """What each of its calls is held to inside the session's sandbox: output, memory, processes, files, hosts. Only tighter
    than the profile and the policy."""
    secrets: tuple[SecretName, ...] = Field(default=(), max_length=8)
    """Names of secrets that it needs: the egress proxy adds them to its requests, as the profile's rules say, and to no
    other tool's."""
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
    """JSON Schema of a manifest, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Manifest.model_json_schema(by_alias=True)}
