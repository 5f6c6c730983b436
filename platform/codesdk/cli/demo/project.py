"""The demo's project: the source of a real third-party project, pinned and fetched from the package index with pip.

sqlparse was chosen because its source archive contains its tests, which need only pytest and no network (537 of them,
two seconds), and because it has a small real defect to fix: it parses `trades ASOF JOIN quotes` as a table `trades`
with the alias `ASOF`. pip must build the metadata of every archive that it downloads; sqlparse's build configuration
is static (hatchling, no hooks), so none of the project's code runs on the host.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from codesdk.domain.model import FrozenModel
from codesdk.errors import ExitCode, Fault

PIP_TIME_LIMIT_S = 180.0
"""A cold download takes one to ten seconds; the rest is for a slow index, after which the demo reports a failure."""


class Edit(FrozenModel):
    """A replacement that the demo makes; `before` occurs exactly once in the file."""

    path: str
    before: str
    after: str


class DemoProject(FrozenModel):
    """A pinned source archive, and what the demo needs to know about its content."""

    name: str
    version: str
    sha256: str
    """Hash of the `.tar.gz`, hex."""
    root: str
    """The archive's single top-level folder."""
    test_command: str
    """Shell command that runs the project's own tests from `root`, offline; needs pytest 7.2 or newer."""
    tests: int
    """Number of tests that pass in the unmodified source."""
    edit: Edit
    """Fixes the defect."""
    test_path: str
    test_source: str
    """A test, not in the archive, that fails before `edit` and passes after it."""

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return f"{self.name}-{self.version}.tar.gz"


SQLPARSE = DemoProject(
    name="sqlparse",
    version="0.6.1",
    sha256="ca722573f848ff2d30e40ea30f53a104b7dea7635ea9285891263eb2c58fb6e7",
    root="sqlparse-0.6.1",
    test_command="python3 -B -m pytest -q -p no:cacheprovider",
    tests=537,
    edit=Edit(
        path="sqlparse/keywords.py",
        before=r"r'|(CROSS\s+|NATURAL\s+)?)?JOIN\b'",
        after=r"r'|(ASOF\s+|CROSS\s+|NATURAL\s+)?)?JOIN\b'",
    ),
    test_path="tests/test_asof.py",
    test_source="""\
import sqlparse
from sqlparse import tokens


def test_asof_join_is_one_keyword():
    statement = sqlparse.parse("SELECT * FROM trades ASOF JOIN quotes")[0]
    joins = [(token.ttype, token.value) for token in statement.flatten() if "JOIN" in token.value]
    assert joins == [(tokens.Keyword, "ASOF JOIN")]
""",
)


class ProjectUnavailable(Fault):
    """The demo's project could not be fetched from the package index."""

    code = "DEMO_PROJECT_UNAVAILABLE"
    retryable = True
    status = 503
    exit_code = ExitCode.UNAVAILABLE


def fetch_project(cache: Path, project: DemoProject = SQLPARSE, *, timeout_s: float = PIP_TIME_LIMIT_S) -> Path:
    """Return the path of the archive in `cache`. Downloads it once and always verifies the pinned hash.

    Raises:
        ProjectUnavailable: pip is missing, can't reach an index, timed out, or received other content.
    """
    archive = cache / project.archive
    if archive.is_file() and _sha256(archive) == project.sha256:
        return archive
    cache.mkdir(parents=True, exist_ok=True)
    # One folder per download on the same file system: concurrent demos each rename a complete file into place.
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as folder:
        _download(project, Path(folder), timeout_s)
        fetched = Path(folder) / project.archive
        if not fetched.is_file() or _sha256(fetched) != project.sha256:
            raise ProjectUnavailable(
                f"pip succeeded but left no {project.archive} with the pinned hash.", advice=_advice(project, cache)
            )
        fetched.replace(archive)
    return archive


def _download(project: DemoProject, folder: Path, timeout_s: float) -> None:
    if find_spec("pip") is None:
        raise ProjectUnavailable(
            f"{sys.executable} has no pip to fetch {project.archive}.", advice=_advice(project, folder.parent)
        )
    pins = folder / "pins.txt"
    pins.write_text(f"{project.name}=={project.version} --hash=sha256:{project.sha256}\n", encoding="utf-8")
    output, exit_code = _run(_pip_line(project, pins, folder), timeout_s)
    if exit_code is None:
        raise ProjectUnavailable(
            f"pip did not fetch {project.archive} within {timeout_s:.0f} s.", advice=_advice(project, folder.parent)
        )
    if exit_code:
        raise ProjectUnavailable(
            f"pip could not fetch {project.archive}: {_reason(output)}", advice=_advice(project, folder.parent)
        )


def _pip_line(project: DemoProject, pins: Path, folder: Path) -> list[str]:
    line = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check"]
    line += ["--no-deps", "--no-binary", project.name, "--require-hashes", "--requirement", str(pins)]
    if find_spec("hatchling") is not None:
        # pip checks no hashes for the build tools of an isolated build; ours, if installed, comes from the lock file.
        line.append("--no-build-isolation")
    return [*line, "--dest", str(folder)]


def _run(line: list[str], timeout_s: float) -> tuple[str, int | None]:
    """Return output and exit code; the code is None if the command timed out and its process group was killed."""
    with subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as pip:
        try:
            output, _ = pip.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(pip.pid, signal.SIGKILL)
            return "", None
        except BaseException:
            os.killpg(pip.pid, signal.SIGKILL)
            raise
        return output, pip.returncode


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    first, *_ = (errors or lines or ["it printed nothing"])[0].split(". ")
    return first.rstrip(".") + "."


def _advice(project: DemoProject, cache: Path) -> str:
    return (
        f"Check that pip reaches a package index (`pip download --no-deps {project.name}=={project.version}`), "
        f"or put {project.archive} (sha256 {project.sha256}) into {cache} yourself."
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
