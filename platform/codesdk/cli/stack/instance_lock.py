"""Reserves a data directory and a port for one stack."""

from __future__ import annotations

import socket
from typing import IO

from codesdk.errors import ExitCode, Fault
from codesdk.settings import PortTaken, Settings
from codesdk.settings.process_lock import try_lock


class AlreadyUp(Fault):
    """Another `codesdk up` uses the data directory."""

    code = "ALREADY_UP"
    status = 409
    exit_code = ExitCode.CANNOT_WRITE


def lock_data_dir(settings: Settings) -> IO[str]:
    """Lock the data directory until the returned file is closed.

    Raises:
        DataDirUnusable: it can't be created or written.
        AlreadyUp: another process holds the lock.
    """
    settings.prepare_data_dir()
    held = try_lock(settings.data_dir / "up.lock")
    if isinstance(held, str):
        raise AlreadyUp(
            f"CodeSDK already runs on {settings.data_dir} (process {held}).",
            advice="Use or stop that one, or choose another --data-dir and --port.",
        )
    return held


def check_port(host: str, port: int) -> None:
    """Check early that the API can bind its address. Port 0 always passes.

    Raises:
        PortTaken: names the address.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As uvicorn binds: connections in TIME_WAIT don't block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise PortTaken(
                f"{host}:{port} cannot be used: {(error.strerror or str(error)).lower()}.",
                advice="Choose another with --port (0 takes any free one), or stop what listens there.",
            ) from error
