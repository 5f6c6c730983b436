"""Real MCP servers from the package indexes, in an image like a user's: built once per machine and version."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from acceptance.agents.install import PINS, AgentPackage, default_cache, install
from codesdk.cli.sandboxes.mcp_server_images import DOCKERFILE
from codesdk.provision.images import mcp_packages
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.images.builder import build_derived_image, describe

PACKAGES = AgentPackage(name="mcp-servers", binary="node_modules/node-linux-*/bin/node")
LOCKS = Path(__file__).parent / "fixtures" / "sources"
FROM_PYPI = {"time": "pypi:mcp-server-time==2026.10.19", "git": "pypi:mcp-server-git==2026.10.19"}
"""Each in a folder of its name. Their locks are those that `codesdk images mcp` wrote for CPython 3.11 on x86-64."""
PYTHON = (3, 11)
"""Of the sandboxes' base image."""


def image_of_servers(host: str, base: str) -> str:
    """The id of an image with Node, four servers and what these need in `/opt/mcp`, on top of a sandbox image.

    Raises:
        AgentUnavailable, PackageMissing: a package index does not give them.
    """
    node = install(PACKAGES, default_cache())
    locks = [PINS / PACKAGES.name / "package-lock.json", *(_lock(name) for name in FROM_PYPI)]
    content = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks) + base.encode()).hexdigest()[:16]
    tag = f"codesdk-test-mcp-servers:{content}"
    with closing(Engine(host)) as engine, tempfile.TemporaryDirectory(prefix="codesdk-mcp-servers-") as folder:
        found = describe(engine, tag)
        return str(found["Id"]) if found else build_derived_image(engine, base, _filled(Path(folder), node), tag=tag)


def _lock(name: str) -> Path:
    return LOCKS / name / "requirements.txt"


def _filled(folder: Path, node: Path) -> Path:
    (folder / "Dockerfile").write_text(DOCKERFILE)
    place = folder / mcp_packages.PACKAGES_DIR
    for name, wanted in FROM_PYPI.items():
        package = mcp_packages.parse_package(wanted)
        assert package is not None
        own = folder / name
        own.mkdir()
        shutil.copy(_lock(name), own)
        mcp_packages.fetch(package, own, PYTHON, lambda _line: None)
        shutil.copytree(own / mcp_packages.PACKAGES_DIR, place / name)
        shutil.rmtree(own)
    modules = node.parents[2]
    shutil.copytree(modules, place / "node_modules", symlinks=True, ignore=shutil.ignore_patterns("node-linux-*"))
    shutil.copy(node, place / "node")
    return folder
