"""The runner as one command line: its modules joined, compressed, and started by `python3 -I -S -c`.

Nothing of it lies in the image or in a mount, so it works with any image, with a read-only root and with a remote
engine. `-I` and `-S` keep an image's PYTHON* variables, working directory and site packages out of a program of root's.
"""

from __future__ import annotations

import base64
import json
import marshal
import zlib
from functools import cache
from importlib.resources import files

from codesdk.sandbox.packaging.minify import minify

_PACKAGE = "codesdk.sandbox.runner"
MODULES = (
    "archive",
    "beneath",
    "boot",
    "bound",
    "changes",
    "channel",
    "codec",
    "digest",
    "execs",
    "eyes",
    "files",
    "kernel",
    "loop",
    "main",
    "manifest",
    "orders",
    "pack",
    "peers",
    "probe",
    "relay",
    "restore",
    "running",
    "shelf",
    "shepherd",
    "spawning",
    "spool",
    "stdio",
    "stills",
    "strays",
    "tally",
    "tree",
    "upload",
    "watches",
    "wire",
)

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


@cache
def program() -> str:
    """The Python program for `-c`."""
    folder = files(_PACKAGE)
    sources: dict[str, str | None] = dict.fromkeys(("codesdk", "codesdk.sandbox", _PACKAGE))
    sources.update({f"{_PACKAGE}.{name}": minify(folder.joinpath(f"{name}.py").read_text("utf-8")) for name in MODULES})
    packed = base64.b64encode(zlib.compress(marshal.dumps(sources, 2), 9)).decode("ascii")
    text = _LOADER % packed
    if len(text) >= _MAX_ARGUMENT:
        raise ValueError(f"the runner has grown to {len(text)} bytes; an argument holds {_MAX_ARGUMENT}")
    return text


def command(settings: dict[str, object], python: str = "python3") -> list[str]:
    """The argv that starts the runner with these settings."""
    return [python, "-I", "-S", "-X", "no_debug_ranges", "-c", program(), json.dumps(settings, separators=(",", ":"))]
