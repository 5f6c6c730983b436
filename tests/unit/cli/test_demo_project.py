"""Downloading the demo's project, with a folder in the package index's place."""

from __future__ import annotations

import hashlib
import io
import tarfile

import pytest

from codesdk.cli.demo.project import SQLPARSE, ProjectUnavailable, fetch_project

FILES = {
    "pyproject.toml": '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
    '[project]\nname = "tiny-demo"\nversion = "1.0"\n',
    "PKG-INFO": "Metadata-Version: 2.1\nName: tiny-demo\nVersion: 1.0\n",
    "tiny_demo.py": "",
}


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The only place that pip looks at."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(folder), "CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    return folder


@pytest.fixture
def tiny(index):
    """A project in the index."""
    with tarfile.open(index / "tiny_demo-1.0.tar.gz", "w:gz") as archive:
        for name, text in FILES.items():
            entry = tarfile.TarInfo(f"tiny_demo-1.0/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    digest = hashlib.sha256((index / "tiny_demo-1.0.tar.gz").read_bytes()).hexdigest()
    return SQLPARSE.model_copy(update={"name": "tiny_demo", "version": "1.0", "sha256": digest})


def test_a_project_is_fetched_once_and_then_needs_no_index(index, tiny, tmp_path):
    first = fetch_project(tmp_path / "cache", tiny)
    (index / tiny.archive).unlink()

    assert fetch_project(tmp_path / "cache", tiny) == first
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["tiny_demo-1.0.tar.gz"]


def test_a_damaged_archive_in_the_cache_is_fetched_anew(tiny, tmp_path):
    archive = fetch_project(tmp_path / "cache", tiny)
    archive.write_bytes(b"cut short")

    assert hashlib.sha256(fetch_project(tmp_path / "cache", tiny).read_bytes()).hexdigest() == tiny.sha256


def test_another_content_under_the_pinned_version_is_refused(tiny, tmp_path):
    forged = tiny.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(ProjectUnavailable, match="HASHES"):
        fetch_project(tmp_path / "cache", forged)

    assert list((tmp_path / "cache").iterdir()) == []


def test_an_index_that_is_away_gives_one_line_that_says_what_to_do(index, tmp_path):
    with pytest.raises(ProjectUnavailable) as caught:
        fetch_project(tmp_path / "cache")

    assert "pip reaches a package index" in str(caught.value)
    assert str(tmp_path / "cache") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_slow_index_is_given_up_at_the_time_limit(tiny, tmp_path):
    with pytest.raises(ProjectUnavailable, match="within 0 s"):
        fetch_project(tmp_path / "cache", tiny, timeout_s=0.05)
