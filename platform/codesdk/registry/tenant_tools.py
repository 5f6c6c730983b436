"""A tenant's own tools on top of the shared ones: it adds, and takes no name that means something already."""

from __future__ import annotations

from pathlib import Path

from codesdk.registry.faults import ManifestInvalid
from codesdk.registry.manifest import Builtin
from codesdk.registry.prompts import PROMPTS_FOLDER, read_prompts
from codesdk.registry.registry import RESERVED, LoadedTool, ProfileBounds, Registry, read_manifests


def tenant_registry(directory: Path, shared: Registry, profiles: ProfileBounds | None = None) -> Registry:
    """The shared tools and those of one tenant; an empty directory adds none.

    Raises:
        ManifestInvalid: as `Registry.load`; also for a built-in, and for a name or a name's first part that is taken.
    """
    prompts = (*shared.prompts.values(), *read_prompts(directory, taken=shared.prompts))
    own = (
        read_manifests(directory, profiles)
        if any(path.name != PROMPTS_FOLDER for path in directory.iterdir())
        else None
    )
    if own is None:
        return Registry(shared.tools(), shared.sources.values(), prompts)
    for source in own.sources:
        message = "A tenant has no MCP servers of its own; an operator adds one to the installation's tools."
        raise source.invalid("kind", message)
    for loaded in own.tools:
        check_tenant_tool(loaded, shared)
    return Registry((*shared.tools(), *(loaded.tool for loaded in own.tools)), shared.sources.values(), prompts)


def check_tenant_tool(loaded: LoadedTool, shared: Registry) -> None:
    """Let a manifest pass that a tenant may have.

    Raises:
        ManifestInvalid: its name, or its name's first part, means something already; or it is a built-in.
    """
    tool = loaded.tool
    first = tool.name.partition(".")[0]
    shadowed = next((other.name for other in shared.tools() if other.wire_name == tool.wire_name), None)
    if shadowed is not None:
        raise loaded.invalid("name", f"`{tool.name}` would shadow `{shadowed}`, a tool of the whole installation.")
    taken = first in RESERVED or first in shared.sources
    if taken or any(other.name.startswith(f"{first}.") for other in shared.tools()):
        # Policies of the installation name tools by patterns (`workspace.*`), and mean their own.
        message = f"Names that begin with `{first}.` are the installation's; begin a tenant's with another word."
        raise loaded.invalid("name", message)
    if isinstance(tool.runs, Builtin):
        message = "A tenant's tool is a command (`argv`): a built-in under another name would get around its policy."
        raise loaded.invalid("runs", message)


def tenant_directories(directory: Path) -> dict[str, Path]:
    """The tenants that have a directory, by id.

    Raises:
        ManifestInvalid: the directory of all of them is not there, or cannot be read.
    """
    try:
        entries = list(directory.iterdir())
    except OSError as error:
        message = f"The directory of the tenants' tools cannot be read: {error.strerror or error}."
        raise ManifestInvalid(str(directory), 1, 1, message) from error
    return {path.name: path for path in entries if path.is_dir() and not path.name.startswith(".")}
