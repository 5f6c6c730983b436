"""`codesdk tools call --local`: runs a manifest's tool on this machine without installation, policy or record."""

from __future__ import annotations

import tempfile
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

from rich.text import Text

from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer, sanitize
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.tools.loading import registry_of
from codesdk.client.workspace_archive import pack
from codesdk.domain.calls import CallIdentity
from codesdk.domain.canonical import content_hash
from codesdk.domain.decisions import Obligations
from codesdk.domain.ids import ToolCallId
from codesdk.domain.tool_results import ToolResult
from codesdk.errors import ExitCode
from codesdk.provision.system import bubblewrap
from codesdk.registry import SourceCall, Tool
from codesdk.sandbox.egress.rules import DENY_ALL
from codesdk.sandbox.local.confinement import detect_confinement
from codesdk.sandbox.local.driver import LocalSandboxes, host_image
from codesdk.sandbox.local.faults import LocalSandboxOff
from codesdk.sandbox.local.warning_text import local_sandbox_warning
from codesdk.sandbox.port import SandboxSpec
from codesdk.sandbox.profiles.loader import load_profiles
from codesdk.tools import ToolContext, run_tool
from codesdk.tools.context import process_limits

TOOL_UID = 249_999
"""Above the uids of installations. The tool gets a uid of its own only if this command runs as root."""


def call_locally(
    name: str, given: dict[str, Any], tools: Path | None, workspace: Path | None, *, profile: str, as_json: bool
) -> int:
    """Run the tool and print its result; returns 1 if it failed.

    It has no network, because there is no egress proxy.

    Raises:
        UnknownTool: with the nearest name. InvalidInput: the input doesn't match the schema.
        InputWrong: the tool belongs to another MCP server.
        LocalSandboxOff: the operator forbids local sandboxes. ProvisionFailed, LocalNotSeparated: bubblewrap doesn't
        work.
        ManifestInvalid, ProfileInvalid, ProfileUnknown, WorkspaceRefused: a file or an option is invalid.
    """
    printer = Printer(as_json=as_json)
    settings = load_settings()
    if settings.local_sandbox == "off":
        raise LocalSandboxOff
    tool = registry_of(tools).resolve(name)
    if isinstance(tool.runs, SourceCall):
        raise InputWrong(f"{tool.name} belongs to the MCP server {tool.runs.source}; it cannot run locally.")
    given = tool.normalize(given)
    tool.check_input(given)
    chosen = load_profiles(settings.profiles_dir).named(profile)
    bounded = chosen.tighten(Obligations(sandbox=tool.sandbox)).model_copy(update={"egress": DENY_ALL})
    found = detect_confinement("") if settings.local_sandbox == "plain" else bubblewrap.ensure(printer.progress)
    for line in local_sandbox_warning(found):
        printer.warn(line)
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
            result = _run(tool, given, sandboxes, spec, archive)
        finally:
            sandboxes.sweep(())
    printer.progress(f"{tool.name} ran in a temporary sandbox on this machine, without policy and record.")
    if as_json:
        printer.emit({"text": result.text, "structured": result.structured, "is_error": result.is_error})
    else:
        printer.out.print(Text("\n".join(sanitize(line) for line in result.text.split("\n"))), soft_wrap=True)
    return ExitCode.FAILED if result.is_error else ExitCode.OK


def _run(
    tool: Tool, given: dict[str, Any], sandboxes: LocalSandboxes, spec: SandboxSpec, archive: bytes | None
) -> ToolResult:
    profile = spec.profile
    sandbox = sandboxes.open(spec)
    try:
        if archive is not None:
            sandbox.import_tar(archive)
        bench = ToolContext(
            sandbox=sandbox,
            profile=profile,
            identity=CallIdentity(tool_call_id=ToolCallId("call_trial"), input_hash=content_hash(given)),
            timeout_s=min(tool.timeout_s, profile.wall_s),
            on_output=lambda _chunk: None,
            limits=process_limits(tool.sandbox),
            allows=lambda _given: True,
        )
        result = run_tool(tool, given, bench)
    finally:
        sandboxes.destroy(spec.owner)
    if not result.is_error:
        tool.check_output(result.structured)
    return result
