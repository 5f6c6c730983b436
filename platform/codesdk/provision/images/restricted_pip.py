"""pip, held from starting other programs: what is no wheel is then refused, and neither built nor cloned here.

Run as a script. `--only-binary` does not hold for what a package names by its address: pip would build such an archive only to
read its metadata, which runs its code. A build is another process, and so is a clone.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

SUBPROCESS_REFUSED = 77
"""Exit code where pip wanted to start one; its own end below 30."""
_PROCESS_EVENTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_ALLOWED_PROGRAMS = ("keyring", "lsb_release", "uname", "rustc", "ld-musl")
"""Programs of this machine that pip asks about the machine, or for the operator's passwords; the names begin so."""


def main() -> None:
    """Be `pip`, with the arguments of this process."""
    refused: list[str] = []

    def refuse_subprocess(event: str, args: tuple[Any, ...]) -> None:
        if event not in _PROCESS_EVENTS:
            return
        program = os.path.basename(os.fsdecode(args[0])) if args else ""  # noqa: PTH119 (pathlib is not needed otherwise)
        if not program.startswith(_ALLOWED_PROGRAMS):
            refused.append(program)
            raise PermissionError("No other program is started here: only wheels are taken.")

    sys.addaudithook(refuse_subprocess)
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        sys.exit(SUBPROCESS_REFUSED if refused and end.code else end.code)


if __name__ == "__main__":
    main()
