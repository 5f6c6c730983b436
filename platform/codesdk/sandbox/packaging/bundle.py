"""Packs the runner into one command line: modules minified, compressed, and started by `python3 -I -S -c`.

It needs no file in the image and no mount, so it works with any image, a read-only root and a remote engine. `-I` and
`-S` ignore the image's PYTHON* variables, working directory and site packages, because the runner runs as root.
"""

from __future__ import annotations

import base64
import json
import marshal
import zlib
from functools import cache
from pathlib import Path

from codesdk.sandbox.packaging.minify import minify

_PACKAGE = "codesdk.sandbox.runner"
_RUNNER = Path(__file__).parents[1] / "runner"
MODULES = tuple(
    sorted(
        ".".join(path.relative_to(_RUNNER).with_suffix("").parts)
        for path in _RUNNER.rglob("*.py")
        if path.name != "__init__.py"
    )
)
"""The modules of the program, below the runner's package."""

_LOADER = """\
import binascii,marshal,sys,zlib
sources=marshal.loads(zlib.decompress(binascii.a2b_base64("%s")))
class Finder:
    def find_spec(self,name,path,target=None):
        if name not in sources: return None
        spec=type(sys.__spec__)(name,self)
        if sources[name] is None: spec.submodule_search_locations=[]
        return spec
    def create_module(self,spec): return None
    def exec_module(self,module):
        name=module.__name__
        exec(compile(sources[name] or "","<"+name+">","exec"),module.__dict__)
        sources[name]=""
sys.meta_path.insert(0,Finder())
from codesdk.sandbox.runner.boot import main
main(sys.argv[1])
"""

_MAX_ARGUMENT = 128 * 1024
"""The kernel's limit of one argument (MAX_ARG_STRLEN)."""


def source(name: str) -> str:
    """The text of one of `MODULES`."""
    return (_RUNNER / f"{name.replace('.', '/')}.py").read_text("utf-8")


@cache
def program() -> str:
    """The Python program for `-c`."""
    packages = sorted({name.rpartition(".")[0] for name in MODULES if "." in name})
    sources: dict[str, str | None] = dict.fromkeys(
        ("codesdk", "codesdk.sandbox", _PACKAGE, *(f"{_PACKAGE}.{package}" for package in packages))
    )
    sources.update({f"{_PACKAGE}.{name}": minify(source(name)) for name in MODULES})
    packed = base64.b64encode(zlib.compress(marshal.dumps(sources, 2), 9)).decode("ascii")
    text = _LOADER % packed
    if len(text) >= _MAX_ARGUMENT:
        raise ValueError(f"the runner has grown to {len(text)} bytes; an argument holds {_MAX_ARGUMENT}")
    return text


def command(settings: dict[str, object], python: str = "python3") -> list[str]:
    """The argv that starts the runner with these settings."""
    return [python, "-I", "-S", "-X", "no_debug_ranges", "-c", program(), json.dumps(settings, separators=(",", ":"))]
