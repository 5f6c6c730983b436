"""Runs pip without letting it start other programs, so that it refuses anything but wheels.

Run as a script. `--only-binary` isn't enough: pip still builds a dependency that is given as a URL to read its
metadata, which runs its code. Both a build and a git clone need a subprocess, and this module blocks those.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

SUBPROCESS_REFUSED = 77
"""Exit code if pip tried to start a program; pip's own exit codes are below 30."""
_PROCESS_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_ALLOWED_PROGRAMS = ("keyring", "lsb_release", "uname", "rustc", "ld-musl")
"""Prefixes of local programs that pip may run to identify the machine or read the operator's credentials."""


def main() -> None:
    """Run `pip` with the arguments of this process."""
    refused: list[str] = []

    def refuse_subprocess(event: str, args: tuple[Any, ...]) -> None:
        if event not in _PROCESS_EVENTS:
            return
        program = os.path.basename(os.fsdecode(args[0])) if args else ""  # noqa: PTH119 (pathlib is not needed otherwise)
        if not program.startswith(_ALLOWED_PROGRAMS):
            refused.append(program)
            raise PermissionError("No other program may be started: only wheels are accepted.")

    sys.addaudithook(refuse_subprocess)
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        sys.exit(SUBPROCESS_REFUSED if refused and end.code else end.code)


if __name__ == "__main__":
    main()
