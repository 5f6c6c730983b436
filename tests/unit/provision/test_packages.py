"""Packages of MCP servers: locked by hashes once, then downloaded by the lock; with a real pip, and a fake npm."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import tarfile

import pytest

from codesdk.provision.images import mcp_packages
from codesdk.provision.images.mcp_packages import PackageMissing, PackageNotBuilt, fetch, parse_package
from wheels import tiny_index, wheel

TINY = parse_package("pypi:tiny-server==1.0")
MODULE = parse_package("npm:@tiny/server@1.2.0")
NPM = """#!{python}
import json, os, pathlib, sys
words = sys.argv[1:]
place = pathlib.Path(words[words.index("--prefix") + 1])
def locked(wish):
    hashed = {{"integrity": "sha512-x"}}
    loose = {{"resolved": "git+ssh://git@example.com/x.git"}}
    return {{"": {{}}, **{{"node_modules/" + name: loose if "loose" in name else hashed for name in wish}}}}
assert os.environ["npm_config_git"] == "false"
with open({log!r}, "a") as log:
    print(json.dumps(words[:words.index("--prefix")]), file=log)
wish = json.loads((place / "package.json").read_text())["dependencies"]
if words[0] == "install":
    if wish == {{"@tiny/gone": "1.2.0"}}:
        sys.exit("npm error 404")
    (place / "package-lock.json").write_text(json.dumps({{"packages": locked(wish)}}))
else:
    assert json.loads((place / "package-lock.json").read_text()) == {{"packages": locked(wish)}}
    for name in wish:
        (place / "node_modules" / name).mkdir(parents=True)
"""


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder in the index's place, with the server and what it needs."""
    return tiny_index(tmp_path / "index", monkeypatch.setenv)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "mcp-tiny"
    made.mkdir()
    return made


def names(folder):
    return {path.name for path in (folder / "packages").glob("*.py")}


def test_a_package_from_pypi_is_locked_with_all_that_it_needs_and_fetched_as_the_lock_says(index, folder):
    said = []
    fetch(TINY, folder, (3, 11, 2), said.append)
    lock = (folder / "requirements.txt").read_text().splitlines()
    assert lock[0] == "# codesdk images mcp: pypi:tiny-server==1.0, for Python 3.11"
    hashes = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in index.iterdir()}
    assert lock[1:] == [
        f"tiny-part==1.1 --hash=sha256:{hashes['tiny_part-1.1-py3-none-any.whl']}",
        f"tiny-server==1.0 --hash=sha256:{hashes['tiny_server-1.0-py3-none-any.whl']}",
    ]
    assert names(folder) == {"tiny_server.py", "tiny_part.py"}
    wheel(index, "tiny-part", "1.2")  # what comes later changes nothing
    fetch(TINY, folder, (3, 11, 2), said.append)
    assert (folder / "requirements.txt").read_text().splitlines() == lock
    assert [line.partition(" ")[0] for line in said] == ["Locking", "Fetching", "Fetching"]


def test_a_file_of_another_hash_than_the_locks_is_refused(index, folder):
    fetch(TINY, folder, (3, 11), print)
    wheel(index, "tiny-server", "1.0", needs=["tiny-part>=1"], text="x = 'changed'")
    with pytest.raises(PackageMissing, match=r"pypi:tiny-server==1.0 cannot be fetched"):
        fetch(TINY, folder, (3, 11), print)
    assert names(folder) == set()


def test_a_package_that_is_not_there_is_an_error_that_says_what_to_look_at(index, folder):
    with pytest.raises(PackageMissing, match="name and version") as told:
        fetch(parse_package("pypi:tiny-server==9.9"), folder, (3, 11), print)
    assert "tiny-server==9.9" in told.value.message
    assert not (folder / "requirements.txt").exists()


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A program in npm's place; what it was called with."""
    log = tmp_path / "npm.log"
    log.touch()
    program = tmp_path / "npm"
    program.write_text(NPM.format(python=sys.executable, log=str(log)))
    program.chmod(0o755)
    monkeypatch.setattr(mcp_packages, "which", lambda _name: str(program))
    return lambda: [json.loads(line) for line in log.read_text().splitlines()]


def test_a_package_from_npm_is_locked_once_and_none_of_its_scripts_run(npm, folder):
    for _ in range(2):
        fetch(MODULE, folder, (3, 11), print)
    assert [words[0] for words in npm()] == ["install", "ci", "ci"]
    assert all("--ignore-scripts" in words for words in npm())
    assert json.loads((folder / "package.json").read_text())["dependencies"] == {"@tiny/server": "1.2.0"}
    assert (folder / "packages" / "node_modules" / "@tiny" / "server").is_dir()
    fetch(parse_package("npm:@tiny/server@1.3.0"), folder, (3, 11), print)
    assert [words[0] for words in npm()][3:] == ["install", "ci"]


def test_what_npm_says_of_a_package_that_is_not_there_is_told(npm, folder):
    with pytest.raises(PackageMissing, match=r"npm:@tiny/gone@1.2.0 cannot be fetched: npm error 404"):
        fetch(parse_package("npm:@tiny/gone@1.2.0"), folder, (3, 11), print)


def test_without_npm_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setattr(mcp_packages, "which", lambda _name: None)
    with pytest.raises(PackageMissing, match="Install Node"):
        fetch(MODULE, folder, (3, 11), print)


def test_what_npm_would_take_from_a_repository_is_refused_before_it_is_fetched(npm, folder):
    with pytest.raises(PackageMissing, match="no hash of node_modules/@tiny/loose"):
        fetch(parse_package("npm:@tiny/loose@1.2.0"), folder, (3, 11), print)
    assert [words[0] for words in npm()] == ["install"]


def test_a_program_called_pip_in_the_directory_is_not_run(index, folder, tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("raise SystemExit('not pip')")
    monkeypatch.chdir(tmp_path)
    fetch(TINY, folder, (3, 11), print)
    assert names(folder) == {"tiny_server.py", "tiny_part.py"}


BACKEND = """
open({ran!r}, "w")
def prepare_metadata_for_build_wheel(place, config_settings=None):
    import pathlib
    info = pathlib.Path(place) / "tiny_part-1.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\\nName: tiny-part\\nVersion: 1.1\\n")
    return info.name
def build_wheel(*args, **named):
    raise SystemExit
"""


def archive(place, ran):
    """An archive that says in its own code what it is, as pip asks it for; `ran` is made when that code runs."""
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    with tarfile.open(place, "w:gz") as packed:
        for name, text in {"pyproject.toml": system, "backend.py": BACKEND.format(ran=str(ran))}.items():
            member = tarfile.TarInfo(f"tiny_part-1.1/{name}")
            member.size = len(text)
            packed.addfile(member, io.BytesIO(text.encode()))
    return place.as_uri()


@pytest.mark.parametrize("kind", ["an archive", "a repository"])
def test_what_a_package_names_by_its_address_is_neither_built_nor_cloned(index, folder, tmp_path, kind):
    # --only-binary says nothing of addresses: https://github.com/pypa/pip/issues/12807
    ran = tmp_path / "ran"
    address = archive(tmp_path / "part.tar.gz", ran) if kind == "an archive" else "git+https://localhost:1/part.git"
    wheel(index, "tiny-server", "3.0", needs=[f"tiny-part @ {address}"])
    with pytest.raises(PackageNotBuilt, match="not a wheel") as told:
        fetch(parse_package("pypi:tiny-server==3.0"), folder, (3, 11), print)
    assert not told.value.retryable
    assert not ran.exists()
    assert not (folder / "requirements.txt").exists()


def test_a_lock_with_a_line_that_has_no_hash_is_refused(index, folder):
    fetch(TINY, folder, (3, 11), print)
    with (folder / "requirements.txt").open("a") as lock:
        lock.write(f"evil @ file:///nowhere/evil.tar.gz --hash=sha256:{'0' * 64}\n")
    with pytest.raises(PackageMissing, match="without an exact version and hash"):
        fetch(TINY, folder, (3, 11), print)


def test_what_only_another_python_needs_is_not_forgotten(index, folder):
    wheel(index, "tiny-server", "2.0", needs=["tiny-part; python_version >= '3.99'"])
    fetch(parse_package("pypi:tiny-server==2.0"), folder, (3, 11), print)
    with pytest.raises(PackageMissing, match=r"needs tiny-part on Python 3\.99"):
        fetch(parse_package("pypi:tiny-server==2.0"), folder, (3, 99), print)


def test_packages_of_somebody_else_are_not_removed(index, folder, tmp_path):
    theirs = folder / "packages" / "kept"
    theirs.mkdir(parents=True)
    with pytest.raises(PackageMissing, match="not fetched by this command"):
        fetch(TINY, folder, (3, 11), print)
    assert theirs.is_dir()
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(PackageMissing, match="it is a link"):
        fetch(TINY, link, (3, 11), print)


def test_everybody_may_read_what_was_fetched_whatever_the_umask_is(index, folder):
    before = os.umask(0o077)
    try:
        fetch(TINY, folder, (3, 11), print)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in (folder / "packages").rglob("*") if path.is_file()}
    assert all(mode & 0o004 for mode in modes)
    assert (folder / "packages").stat().st_mode & 0o005 == 0o005
