"""`python -m codesdk.api`: runs the API and the MCP host, configured by `CODESDK_*` variables."""

from __future__ import annotations

import logging
import sys

from codesdk.api.server import serve
from codesdk.errors import ExitCode, Fault
from codesdk.settings import read_settings


def main() -> int:
    """Serve until a signal, and return the exit code. On failure, the last line on stderr has the reason."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        serve(read_settings())
    except Fault as fault:
        print(f"error: {' '.join(str(fault).split())}", file=sys.stderr)  # noqa: T201 (for whoever started it)
        return fault.exit_code
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())
