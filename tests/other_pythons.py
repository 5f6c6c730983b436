"""Sandbox images whose `python3` is another version than Debian's: an interpreter of this machine, copied in."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

from codesdk.sandbox.docker.engine import Engine

VERSIONS = ("3.9", "3.10", "3.12", "3.13")
"""Beside 3.11, which the base image has."""
_ASK = "import json, sys; print(json.dumps([sys.version_info[:2], sys.base_prefix]))"
_LEFT_OUT = ("test", "tests", "idlelib", "site-packages", "dist-packages", "__pycache__", "ensurepip", "lib2to3")
_DOCKERFILE = """\
FROM {base}
USER 0
COPY python /opt/python
RUN chmod -R a+rX /opt/python && ln -sf /opt/python/bin/python{version} /usr/local/bin/python3 \\
    && echo /opt/python/lib > /etc/ld.so.conf.d/python.conf && ldconfig
"""


def find(version: str) -> Path | None:
    """The prefix of an interpreter of that version: the one on PATH, or one of pyenv's."""
    name = f"python{version}"
    root = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    candidates = [shutil.which(name), *sorted(map(str, root.glob(f"versions/{version}.*/bin/{name}")))]
    for candidate in filter(None, candidates):
        ran = subprocess.run(
            [candidate, "-I", "-S", "-c", _ASK], capture_output=True, text=True, timeout=20, check=False
        )
        if ran.returncode != 0:
            continue  # a shim of pyenv's, of a version that is not chosen
        found, prefix = json.loads(ran.stdout)
        if ".".join(map(str, found)) == version and (Path(prefix) / "bin" / name).exists():
            return Path(prefix)
    return None


def build(engine: Engine, base: str, version: str, prefix: Path) -> str:
    """The id of such an image. The interpreter must run with the base's C library."""
    made, _ = engine.client.images.build(
        fileobj=_context(base, version, prefix), custom_context=True, rm=True, forcerm=True, network_mode="none"
    )
    return str(made.id)


def _context(base: str, version: str, prefix: Path) -> io.BytesIO:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        text = _DOCKERFILE.format(base=base, version=version).encode()
        about = tarfile.TarInfo("Dockerfile")
        about.size = len(text)
        tar.addfile(about, io.BytesIO(text))
        tar.add((prefix / "bin" / f"python{version}").resolve(), f"python/bin/python{version}")
        tar.add(prefix / "lib" / f"python{version}", f"python/lib/python{version}", filter=_keep)
        for library in prefix.glob(f"lib/libpython{version}*.so*"):
            tar.add(library, f"python/lib/{library.name}")
    packed.seek(0)
    return packed


def _keep(about: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(about.name).name
    return None if name in _LEFT_OUT or name.startswith("config-") else about
