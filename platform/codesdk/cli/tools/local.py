"""`codesdk tools call --local`: a manifest tried on this machine, with no installation, no policy and no record."""

from __future__ import annotations

import tempfile
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.text import Text

from codesdk.cli.given import InputWrong
from codesdk.cli.places import settings_of
from codesdk.cli.plain import plain
from codesdk.cli.tools.loading import registry_of
from codesdk.cli.voice import Voice
from codesdk.cli.workspace import pack
from codesdk.domain.calls import CallIdentity
from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Obligations
from codesdk.domain.ids import ToolCallId
from codesdk.domain.tools import ToolResult
from codesdk.errors import ExitCode
from codesdk.provision import bubblewrap
from codesdk.registry import SourceCall, Tool
from codesdk.sandbox.egress.rules import NOTHING
from codesdk.sandbox.local.confinement import find
from codesdk.sandbox.local.driver import LocalSandboxes, host_image
from codesdk.sandbox.local.faults import LocalSandboxOff
from codesdk.sandbox.local.notice import warning
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.profiles import load_profiles
from codesdk.toolcalls.builtins import Bench, run_tool
from codesdk.toolcalls.builtins.bench import process_limits

TOOL_UID = 249_999
"""Beyond those that installations give out; only where this command runs as root does the tool get a uid of its own."""


def call_locally(
    name: str, asked: dict[str, Any], tools: Path | None, workspace: Path | None, *, profile: str, as_json: bool
) -> int:
    """Print what the tool gives; 1 where it failed. Without network: there is no proxy beside it.

    Raises:
        UnknownTool: with the nearest name. InvalidInput: the input does not fit.
        InputWrong: it is a tool of another MCP server.
        LocalSandboxOff: an operator has ruled local sandboxes out. ProvisionFailed, LocalNotSeparated: no wall here.
        ManifestInvalid, ProfileInvalid, ProfileUnknown, WorkspaceRefused: what was given cannot be used.
    """
    voice = Voice(as_json=as_json)
    settings = settings_of()
    if settings.local_sandbox == "off":
        raise LocalSandboxOff
    tool = registry_of(tools).resolve(name)
    if isinstance(tool.runs, SourceCall):
        raise InputWrong(f"{tool.name} belongs to the MCP server {tool.runs.source}; it is not tried locally.")
    tool.check_input(asked)
    chosen = load_profiles(settings.profiles_dir).named(profile)
    bounded = chosen.tighten(Obligations(sandbox=tool.sandbox)).model_copy(update={"egress": NOTHING})
    found = find("") if settings.local_sandbox == "plain" else bubblewrap.ensure(voice.say)
    for line in warning(found):
        voice.warn(line)
    archive = pack(workspace)[0] if workspace is not None else None
    instance = f"trial-{uuid.uuid4().hex}"
    with (
        tempfile.TemporaryDirectory(prefix="codesdk-trial-") as place,
        closing(LocalSandboxes(instance, Path(place) / "local", found)) as sandboxes,
    ):
        try:
            spec = SandboxSpec(
                owner=f"sbx_{uuid.uuid4().hex}",
                instance=instance,
                profile=bounded,
                image=host_image(),
                tool_uid=TOOL_UID,
                generation=1,
            )
            result = _run(tool, asked, sandboxes, spec, archive)
        finally:
            sandboxes.sweep(())
    voice.say(f"{tool.name} ran in a sandbox of this machine that is gone: nobody was asked, and nothing is recorded.")
    if as_json:
        voice.give({"text": result.text, "structured": result.structured, "is_error": result.is_error})
    else:
        voice.out.print(Text("\n".join(plain(line) for line in result.text.split("\n"))), soft_wrap=True)
    return ExitCode.FAILED if result.is_error else ExitCode.OK


def _run(
    tool: Tool, asked: dict[str, Any], sandboxes: LocalSandboxes, spec: SandboxSpec, archive: bytes | None
) -> ToolResult:
    profile = spec.profile
    sandbox = sandboxes.open(spec)
    try:
        if archive is not None:
            sandbox.import_tar(archive)
        bench = Bench(
            sandbox=sandbox,
            profile=profile,
            identity=CallIdentity(tool_call_id=ToolCallId("call_trial"), input_hash=content_hash(asked)),
            timeout_s=min(tool.timeout_s, profile.wall_s),
            on_output=lambda _chunk: None,
            limits=process_limits(tool.sandbox),
        )
        result = run_tool(tool, asked, bench)
    finally:
        sandboxes.destroy(spec.owner)
    if not result.is_error:
        tool.check_output(result.structured)
    return result
