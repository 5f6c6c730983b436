"""pip, held from starting other programs: what is no wheel is then refused, and neither built nor cloned here.

Run as a script. `--only-binary` does not hold for what a package names by its address: pip would build such an archive only to
read its metadata, which runs its code. A build is another process, and so is a clone.
"""

from __future__ import annotations

import os
import runpy
import sys
from typing import Any

REFUSED = 77
"""Exit code where pip wanted to start one; its own end below 30."""
_STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork")
_ASKED = ("keyring", "lsb_release", "uname", "rustc", "ld-musl")
"""Programs of this machine that pip asks about the machine, or for the operator's passwords; the names begin so."""


def main() -> None:
    """Be `pip`, with the arguments of this process."""
    refused: list[str] = []

    def hold(event: str, args: tuple[Any, ...]) -> None:
        if event not in _STARTS:
            return
        program = os.path.basename(os.fsdecode(args[0])) if args else ""  # noqa: PTH119 (pathlib is not needed otherwise)
        if not program.startswith(_ASKED):
            refused.append(program)
            raise PermissionError("No other program is started here: only wheels are taken.")

    sys.addaudithook(hold)
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        sys.exit(REFUSED if refused and end.code else end.code)


if __name__ == "__main__":
    main()
