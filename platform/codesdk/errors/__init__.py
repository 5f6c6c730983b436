"""Faults: what went wrong, with a stable code, whether a retry can help, and what to do about it.

Expected outcomes (a denial, a wait, a failed command) are values, never exceptions. A `Fault` is raised where the
product cannot do what it was asked, and is translated once at each seam: to an exit code and one line by the CLI,
to problem+json by the HTTP API, to a tool error or a protocol error by the MCP host.
"""

from __future__ import annotations

from codesdk.errors.fault import Conflict, ExitCode, Fault, InternalFault, NotFound, NotPermitted, Unavailable

__all__ = ["Conflict", "ExitCode", "Fault", "InternalFault", "NotFound", "NotPermitted", "Unavailable"]
