"""`codesdk tools new --mcp`: writes the manifest of a third-party MCP server."""

from __future__ import annotations

from pathlib import Path

from codesdk.cli.console.terminal import Printer
from codesdk.cli.sandboxes.mcp_server_images import image_of, parse_package
from codesdk.cli.tools.scaffold import double_quoted, flow_mapping, split, write_new
from codesdk.domain.decisions import Classification
from codesdk.errors import ExitCode
from codesdk.provision.images.mcp_packages import INSTALL_DIR, ServerPackage
from codesdk.registry import lint


def create_source_manifest(
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
        InputWrong: a name, the package or the command is invalid, or the file exists.
    """
    image_of(name)
    found = parse_package(package)
    argv = split(command, example="python3 -m mcp_server_time")
    manifest = directory / f"{name}.yaml"
    lines = _manifest(name, found, argv, classification, description, sees_workspace=sees_workspace)
    write_new(manifest, "\n".join(lines) + "\n")
    printer = Printer()
    findings = [finding for finding in lint([manifest]) if finding.fatal]
    for finding in findings:
        printer.warn(f"{finding.file}:{finding.line}:{finding.column}: {finding.message}")
    lines = [
        f"Wrote {manifest}. Next:",
        f"  codesdk images mcp {name} {found}   # its image",
        f"  codesdk tools pin {name}   # reads its tools; none can be called before",
    ]
    for line in lines:
        printer.out.print(line, soft_wrap=True, markup=False, highlight=False)
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
    text = f"{package.name} {package.version} from {package.home}. Describe who wrote it, and why you trust it."
    return [
        "kind: mcp",
        f"name: {name}",
        "version: 0.1.0",
        f"title: {name.replace('-', ' ').capitalize()}",
        f"description: {double_quoted(description or text)}",
        f"argv: [{', '.join(map(double_quoted, argv))}]",
        *([f"env: {flow_mapping({'PYTHONPATH': INSTALL_DIR})}"] if package.kind == "pypi" else []),
        f"image: {image_of(name)}",
        *(["workspace: read"] if sees_workspace else []),
        f"classification: {classification.value}  # for each tool that `tools` does not list",
    ]
