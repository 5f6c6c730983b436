"""A tenant's own tools, added to the shared ones. They can't use a name that is in use."""

from __future__ import annotations

from pathlib import Path

from codesdk.registry.faults import ManifestInvalid
from codesdk.registry.manifest import Builtin
from codesdk.registry.prompts import PROMPTS_FOLDER, read_prompts
from codesdk.registry.registry import RESERVED, LoadedTool, ProfileBounds, Registry, read_manifests


def tenant_registry(directory: Path, shared: Registry, profiles: ProfileBounds | None = None) -> Registry:
    """Return the shared tools with those of one tenant. An empty directory adds none.

    Raises:
        ManifestInvalid: as `Registry.load`; also for a built-in, and for a name or first part that is in use.
    """
    prompts = (*shared.prompts.values(), *read_prompts(directory, taken=shared.prompts))
    try:
        empty = all(path.name == PROMPTS_FOLDER for path in directory.iterdir())
    except OSError as error:
        raise ManifestInvalid(str(directory), 1, 1, str(error)) from error
    if empty:
        return Registry(shared.tools(), shared.sources.values(), prompts)
    own = read_manifests(directory, profiles)
    for source in own.sources:
        message = "A tenant can't have its own MCP servers; an operator can add one to the installation's tools."
        raise source.invalid("kind", message)
    for loaded in own.tools:
        check_tenant_tool(loaded, shared)
    return Registry((*shared.tools(), *(loaded.tool for loaded in own.tools)), shared.sources.values(), prompts)


def check_tenant_tool(loaded: LoadedTool, shared: Registry) -> None:
    """Check that a tenant may have this tool.

    Raises:
        ManifestInvalid: its name, or the name's first part, is in use; or it is a built-in.
    """
    tool = loaded.tool
    first = tool.name.partition(".")[0]
    shadowed = next((other.name for other in shared.tools() if other.wire_name == tool.wire_name), None)
    if shadowed is not None:
        raise loaded.invalid("name", f"`{tool.name}` would shadow `{shadowed}`, a tool of the whole installation.")
    taken = first in RESERVED or first in shared.sources
    if taken or any(other.name.startswith(f"{first}.") for other in shared.tools()):
        # The installation's policies match tools by patterns (`workspace.*`), and mean its own tools.
        message = f"Names that begin with `{first}.` belong to the installation; choose another first part."
        raise loaded.invalid("name", message)
    if isinstance(tool.runs, Builtin):
        message = "A tenant's tool must be a command (`argv`): a built-in under another name would bypass its policy."
        raise loaded.invalid("runs", message)
