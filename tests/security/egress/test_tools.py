"""Common programs that need egress, against the tests' own servers."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.server
import io
import subprocess
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from codesdk.sandbox.port import FileWrite
from egress_stage import rules
from sandboxes import run, spec

pytestmark = pytest.mark.engine


class Site:
    """Files over HTTPS, under a name of its own."""

    def __init__(self, folder: Path, host: str, authority) -> None:
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_arguments) -> None:
                pass

        class Handshaking(http.server.ThreadingHTTPServer):
            def finish_request(self, request, client_address) -> None:
                with contextlib.suppress(OSError), context.wrap_socket(request, server_side=True) as secured:
                    super().finish_request(secured, client_address)

        context = authority.server(host)
        self.host = host
        self.server = Handshaking(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        self.port = self.server.server_address[1]
        self.url = f"https://{host}:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture(scope="module")
def index(tmp_path_factory, authority):
    """A package index with one wheel."""
    folder = tmp_path_factory.mktemp("index")
    name = "greeting-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder / name, "w") as wheel:
        wheel.writestr("greeting.py", "TEXT = 'hello from the index'\n")
        wheel.writestr("greeting-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n")
        wheel.writestr(
            "greeting-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(
            "greeting-1.0.dist-info/RECORD",
            "greeting.py,,\ngreeting-1.0.dist-info/METADATA,,\ngreeting-1.0.dist-info/WHEEL,,\ngreeting-1.0.dist-info/RECORD,,\n",
        )
    page = folder / "simple" / "greeting"
    page.mkdir(parents=True)
    digest = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (page / "index.html").write_text(f'<a href="/{name}#sha256={digest}">{name}</a>')
    site = Site(folder, "index.test", authority)
    yield site
    site.close()


@pytest.fixture(scope="module")
def forge(tmp_path_factory, authority):
    """A git repository over HTTPS."""
    folder = tmp_path_factory.mktemp("forge")
    work = folder / "work"

    def git(*words, cwd=work):
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *words],
            cwd=cwd,
            check=True,
            capture_output=True,
        )

    work.mkdir()
    git("init", "--quiet")
    (work / "README").write_text("hello from the forge\n")
    git("add", "README")
    git("commit", "--quiet", "-m", "first")
    git("clone", "--quiet", "--bare", str(work), str(folder / "project.git"), cwd=folder)
    git("update-server-info", cwd=folder / "project.git")
    site = Site(folder, "forge.test", authority)
    yield site
    site.close()


@pytest.fixture(scope="module")
def allowed(index, forge):
    return rules(*({"host": site.host, "ports": [site.port]} for site in (index, forge)))


@pytest.fixture(scope="module")
def sandbox(world, sandbox_image, allowed, authority):
    made = world[0].open(spec(world[0]._instance, sandbox_image, egress=allowed))
    made.files.write((FileWrite(path="authority.pem", content=authority.path.read_bytes()),))
    yield made
    world[0].destroy(made.owner)


def pip_as_tar() -> bytes:
    """The pip of this environment: the base image has none."""
    pip = pytest.importorskip("pip")
    folder = Path(pip.__file__).parent
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.add(folder, "tools/pip", filter=lambda item: None if "__pycache__" in item.name else item)
    return buffer.getvalue()


def test_pip_installs_from_an_allowed_index_and_from_no_other(sandbox, world, index, allowed):
    sandbox.import_tar(pip_as_tar())
    env = {
        "PYTHONPATH": "/workspace/tools",
        "PIP_CERT": "/workspace/authority.pem",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_RETRIES": "0",
    }
    install = ("python3", "-m", "pip", "install", "--no-cache-dir", "--target", "/workspace/site", "greeting")
    ran = run(sandbox, *install, env={**env, "PIP_INDEX_URL": f"{index.url}/simple/"}, egress=allowed, timeout_s=60.0)
    assert ran.result.exit_code == 0, ran
    shown = run(
        sandbox, "python3", "-c", "import greeting; print(greeting.TEXT)", env={"PYTHONPATH": "/workspace/site"}
    )
    assert shown.stdout == b"hello from the index\n"
    assert {item.host for item in world[1].all} == {"index.test"}

    other = {**env, "PIP_INDEX_URL": f"https://elsewhere.test:{index.port}/simple/"}
    ran = run(sandbox, *install, "--upgrade", env=other, egress=allowed, timeout_s=60.0)
    assert ran.result.exit_code == 1
    assert world[1].all[-1].reason == "not_allowed"


def test_pip_gets_nothing_without_a_rule(sandbox, index):
    env = {"PYTHONPATH": "/workspace/tools", "PIP_CERT": "/workspace/authority.pem", "PIP_RETRIES": "0"}
    install = ("python3", "-m", "pip", "install", "--no-cache-dir", "--target", "/workspace/none", "greeting")
    ran = run(sandbox, *install, env={**env, "PIP_INDEX_URL": f"{index.url}/simple/"}, timeout_s=60.0)
    assert ran.result.exit_code == 1


def test_git_clones_from_an_allowed_host_and_from_no_other(sandbox, world, forge, allowed):
    env = {"GIT_SSL_CAINFO": "/workspace/authority.pem", "GIT_TERMINAL_PROMPT": "0"}
    ran = run(sandbox, "git", "clone", "--quiet", f"{forge.url}/project.git", "cloned", env=env, egress=allowed)
    assert ran.result.exit_code == 0, ran
    assert run(sandbox, "cat", "cloned/README").stdout == b"hello from the forge\n"
    assert {item.host for item in world[1].all if item.phase == "closed"} >= {"forge.test"}

    for url in (
        f"https://evil.test:{forge.port}/project.git",
        f"http://forge.test:{forge.port}/project.git",
        "git://forge.test/project.git",
    ):
        ran = run(sandbox, "git", "clone", "--quiet", url, "refused", env=env, egress=allowed)
        assert ran.result.exit_code == 128, url
    ran = run(sandbox, "git", "clone", "--quiet", f"{forge.url}/project.git", "refused", env=env)
    assert ran.result.exit_code == 128
