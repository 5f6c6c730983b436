"""Real MCP servers from the package indexes, in an image as a user's would be: built once per machine and version."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import docker
from docker.errors import ImageNotFound

from acceptance.agents.install import PINS, AgentPackage, default_cache, install

PACKAGES = AgentPackage(name="mcp-servers", binary="node_modules/node-linux-*/bin/node")
PINNED = Path(__file__).parent / "fixtures" / "sources" / "requirements.txt"
PIP_LIMIT_S = 300.0
_DOCKERFILE = "FROM {base}\nCOPY mcp /opt/mcp\n"


class PackagesMissing(Exception):
    """The Python packages cannot be installed here."""


def image_of_servers(host: str, base: str) -> str:
    """The id of an image with Node, four servers and what these need, on top of a sandbox image.

    Raises:
        AgentUnavailable, PackagesMissing: a package index does not give them.
    """
    node = install(PACKAGES, default_cache())
    lock = (PINS / PACKAGES.name / "package-lock.json").read_bytes()
    content = hashlib.sha256(lock + PINNED.read_bytes() + base.encode()).hexdigest()[:16]
    client = docker.DockerClient(base_url=host)
    try:
        tag = f"codesdk-test-mcp-servers:{content}"
        try:
            return str(client.images.get(tag).id)
        except ImageNotFound:
            return _built(client, base, tag, node)
    finally:
        client.close()


def _built(client: docker.DockerClient, base: str, tag: str, node: Path) -> str:
    modules = node.parents[2]
    with tempfile.TemporaryDirectory(prefix="codesdk-mcp-servers-") as folder:
        python = Path(folder) / "py"
        _pip(python)
        dockerfile = Path(folder) / "Dockerfile"
        dockerfile.write_text(_DOCKERFILE.format(base=base))
        context = Path(folder) / "context.tar"
        with tarfile.open(context, "w") as packed:
            packed.add(dockerfile, "Dockerfile")
            packed.add(python, "mcp/py")
            packed.add(node, "mcp/node")
            packed.add(modules, "mcp/node_modules", filter=lambda item: None if "/node-linux-" in item.name else item)
        with context.open("rb") as sent:
            image, _ = client.images.build(fileobj=sent, custom_context=True, tag=tag, rm=True)
    return str(image.id)


def _pip(target: Path) -> None:
    line = [sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    line += ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11", "--no-compile"]
    try:
        done = subprocess.run(
            [*line, "--target", str(target), "-r", str(PINNED)],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=PIP_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise PackagesMissing(f"pip: not within {PIP_LIMIT_S:g} s") from late
    if done.returncode:
        raise PackagesMissing(f"pip: {done.stderr.strip()[-400:]}")
