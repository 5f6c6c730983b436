"""`codesdk tools new --mcp`: a manifest for somebody else's MCP server from a package, and the folder of its image."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from codesdk.cli.given import InputWrong
from codesdk.cli.tools.making import flow_of, quoted, split, write_new
from codesdk.cli.voice import Voice
from codesdk.domain.decisions import Classification
from codesdk.errors import ExitCode
from codesdk.registry import lint

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_PYPI = re.compile(r"pypi:([A-Za-z0-9][A-Za-z0-9._-]{0,99})==([0-9][A-Za-z0-9.!+_-]{0,49})")
_NPM = re.compile(r"npm:((?:@[a-z0-9~-][a-z0-9._~-]{0,99}/)?[a-z0-9~][a-z0-9._~-]{0,99})@([0-9][A-Za-z0-9.+-]{0,49})")
PLACE = "/opt/mcp"
"""Where the image has the package and what it needs."""


class _Package(NamedTuple):
    name: str
    version: str
    home: str
    base: str
    """The image of ours that its own stands on."""
    fetch: str
    """The command that gets it, into the folder that it is given."""
    env: dict[str, str]


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
    """Write `<directory>/<name>.yaml`, and beside the working directory's files `mcp-<name>/Dockerfile`.

    Raises:
        InputWrong: a name, the package or the command cannot be, or there is such a file.
    """
    if _NAME.fullmatch(name) is None:
        raise InputWrong(f"{name!r} is no name of a server.", advice="Write letters, digits and `-`: time")
    found = _package(package)
    argv = split(command, example="python3 -m mcp_server_time")
    folder = Path(f"mcp-{name}")
    manifest, dockerfile = directory / f"{name}.yaml", folder / "Dockerfile"
    lines = _manifest(name, found, argv, classification, description, sees_workspace=sees_workspace)
    write_new(manifest, "\n".join(lines) + "\n")
    try:
        folder.mkdir(exist_ok=True)
        write_new(dockerfile, f"ARG BASE\nFROM ${{BASE}}\nCOPY packages {PLACE}\n")
    except BaseException:
        manifest.unlink()
        raise
    voice = Voice()
    findings = [finding for finding in lint([manifest]) if finding.fatal]
    for finding in findings:
        voice.warn(f"{finding.file}:{finding.line}:{finding.column}: {finding.message}")
    said = [f"Wrote {manifest} and {dockerfile}. Next:", *(f"  {step}" for step in _steps(name, found, folder))]
    for line in said:
        voice.out.print(line, soft_wrap=True, markup=False, highlight=False)
    return ExitCode.DATA if findings else ExitCode.OK


def _package(given: str) -> _Package:
    if found := _PYPI.fullmatch(given):
        # Python in `base` is Debian's; wheels alone, so that nothing of the package runs while it is fetched.
        fetch = f"pip install --python-version 3.11 --only-binary :all: '{found[1]}=={found[2]}' --target"
        return _Package(found[1], found[2], "PyPI", "base", fetch, {"PYTHONPATH": PLACE})
    if found := _NPM.fullmatch(given):
        fetch = f"npm install --ignore-scripts '{found[1]}@{found[2]}' --prefix"
        return _Package(found[1], found[2], "npm", "node", fetch, {})
    advice = (
        "Name one version: pypi:mcp-server-time==2026.10.19, or npm:@modelcontextprotocol/server-filesystem@2026.8.31"
    )
    raise InputWrong(f"{given!r} is no package of one version.", advice=advice)


def _manifest(
    name: str,
    package: _Package,
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
        *([f"env: {flow_of(package.env)}"] if package.env else []),
        f"image: mcp-{name}",
        *(["workspace: read"] if sees_workspace else []),
        f"classification: {classification.value}  # of each tool of which `tools` says nothing",
    ]


def _steps(name: str, package: _Package, folder: Path) -> list[str]:
    return [
        f"{package.fetch} {folder}/packages",
        f"docker build --build-arg BASE=sha256:<id of {package.base} in: codesdk images list> -t mcp-{name} {folder}",
        f"codesdk images check mcp-{name}   # prints its id: a line `  mcp-{name}: <id>` in images.yaml lists it",
        f"codesdk tools pin {name}          # reads its tools; nothing can be called before",
    ]
