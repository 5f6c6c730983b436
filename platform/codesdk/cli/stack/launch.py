"""The entry of a supervised process: it ends when its supervisor does, however that ends.

Run as `python -m codesdk.cli.stack.launch SUPERVISOR_PID MODULE`.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

PR_SET_PDEATHSIG = 1


def launch(supervisor: int, module: str) -> None:
    """Tie this process to its supervisor, then become `module`."""
    if sys.platform == "linux":
        # KILL, not TERM: the promise is that nothing outlives the supervisor, and what a killed worker leaves is
        # taken up by the next one. The kernel watches the thread that started us, which is the supervisor's main one.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it died before the kernel knew whom to watch
            os._exit(1)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    launch(int(sys.argv[1]), sys.argv[2])
