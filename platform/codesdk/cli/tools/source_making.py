"""`codesdk tools new --mcp`: a manifest for somebody else's MCP server from a package."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.server_images import image_of, package_named
from codesdk.cli.tools.making import flow_of, quoted, split, write_new
from codesdk.cli.voice import Voice
from codesdk.domain.decisions import Classification
from codesdk.errors import ExitCode
from codesdk.provision.packages import PLACE, ServerPackage
from codesdk.registry import lint


def make_source(
    name: str,
    package: str,
    command: str,
    classification: Classification,
    *,
    description: str | None,
    sees_workspace: bool,
    directory: Path,
) -> int:
    """Write `<directory>/<name>.yaml`.

    Raises:
        InputWrong: a name, the package or the command cannot be, or there is such a file.
    """
    image_of(name)
    found = package_named(package)
    argv = split(command, example="python3 -m mcp_server_time")
    manifest = directory / f"{name}.yaml"
    lines = _manifest(name, found, argv, classification, description, sees_workspace=sees_workspace)
    write_new(manifest, "\n".join(lines) + "\n")
    voice = Voice()
    findings = [finding for finding in lint([manifest]) if finding.fatal]
    for finding in findings:
        voice.warn(f"{finding.file}:{finding.line}:{finding.column}: {finding.message}")
    said = [
        f"Wrote {manifest}. Next:",
        f"  codesdk images mcp {name} {found}   # its image",
        f"  codesdk tools pin {name}   # reads its tools; nothing can be called before",
    ]
    for line in said:
        voice.out.print(line, soft_wrap=True, markup=False, highlight=False)
    return ExitCode.DATA if findings else ExitCode.OK


def _manifest(
    name: str,
    package: ServerPackage,
    argv: list[str],
    classification: Classification,
    description: str | None,
    *,
    sees_workspace: bool,
) -> list[str]:
    told = f"{package.name} {package.version} from {package.home}. Say who wrote it, and why it is trusted."
    return [
        "kind: mcp",
        f"name: {name}",
        "version: 0.1.0",
        f"title: {name.replace('-', ' ').capitalize()}",
        f"description: {quoted(description or told)}",
        f"argv: [{', '.join(map(quoted, argv))}]",
        *([f"env: {flow_of({'PYTHONPATH': PLACE})}"] if package.kind == "pypi" else []),
        f"image: {image_of(name)}",
        *(["workspace: read"] if sees_workspace else []),
        f"classification: {classification.value}  # of each tool of which `tools` says nothing",
    ]
