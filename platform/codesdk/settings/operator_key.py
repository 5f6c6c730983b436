"""The API key of this machine's operator: a file in the data directory, which clients on this machine read.

A user who can read that directory has the operator's power anyway.
"""

from __future__ import annotations

from pathlib import Path

from codesdk.errors import ExitCode, Fault

KEY_FILE = "operator.key"


class NoOperatorKey(Fault):
    """There is no key for the daemon's API."""

    code = "NO_OPERATOR_KEY"
    status = 401
    exit_code = ExitCode.NO_PERMISSION


def operator_key(data_dir: Path, other: Path | None = None) -> str:
    """Read the key that `codesdk up` stored, or the one in the file `other`.

    Raises:
        NoOperatorKey: there is none, or this user can't read it.
    """
    try:
        return (other or data_dir / KEY_FILE).read_text().strip()
    except OSError as error:
        raise NoOperatorKey(
            f"There is no operator key in {other or data_dir} ({(error.strerror or str(error)).lower()}).",
            advice="Fix CODESDK_OPERATOR_KEY_FILE."
            if other
            else "Start `codesdk up` with the same --data-dir, as the same user, or name a file in CODESDK_OPERATOR_KEY_FILE.",
        ) from error
