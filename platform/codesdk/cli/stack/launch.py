"""Entry point of a supervised process, which the kernel kills when its supervisor dies.

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
    """Tie this process's life to the supervisor's, then run `module`."""
    if sys.platform == "linux":
        # KILL, not TERM: nothing may outlive the supervisor, and the next worker recovers what this one leaves. The
        # kernel watches the thread that started us, which is the supervisor's main thread.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != supervisor:  # it died before prctl took effect
            os._exit(1)
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    launch(int(sys.argv[1]), sys.argv[2])
