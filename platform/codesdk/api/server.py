"""The API process: binds its port, opens the services, and closes them on shutdown."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import cast

import uvicorn
from fastapi import FastAPI

from codesdk.api.app import create_app
from codesdk.api.http_timeouts import TimeoutH11Protocol
from codesdk.bootstrap import Services
from codesdk.errors import ExitCode, Fault
from codesdk.settings import PortTaken, Settings, runfile

GRACE_S = 5
"""Seconds that responses in progress have to finish at shutdown."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open. Agents think between calls, and reconnecting costs a call about 1 ms."""
_BACKLOG = 512
_NAME = "api"


class CannotListen(Fault):
    """The address can't be bound."""

    code = "CANNOT_LISTEN"
    exit_code = ExitCode.CANNOT_WRITE


def serve(settings: Settings, wiring: Callable[[Settings], Services] = Services) -> None:
    """Serve until SIGTERM or SIGINT. When ready, write the address to `run/api.json` in the data directory.

    Raises:
        PortTaken, CannotListen: before anything else was started.
        Fault: raised by `wiring`; the port is free again.
    """
    with closing(_listen(settings.host, settings.port)) as listener, closing(wiring(settings)) as services:
        app = create_app(services, settings, _url(settings.host, listener))
        config = uvicorn.Config(
            app,
            http=TimeoutH11Protocol,  # not httptools: it keeps trailing blanks of header values, which MCP forbids
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
        )
        _Server(config, app, settings.data_dir, _url(settings.host, listener)).run(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn, which also writes the run file, and doesn't raise its signal again."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, data_dir: Path, url: str) -> None:
        super().__init__(config)
        self._stop = cast("Callable[[], None]", app.state.stop)
        self._data_dir = data_dir
        self._runfile_content = {"url": url, "mcp_url": f"{url}/mcp", "pid": os.getpid()}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        runfile.write(self._data_dir, _NAME, self._runfile_content)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if runfile.read(self._data_dir, _NAME) == self._runfile_content:  # otherwise it belongs to a later process
            (self._data_dir / "run" / f"{_NAME}.json").unlink(missing_ok=True)
        self._stop()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn's version raises the signal again at the end, which would end the process before the services close.
        loop = asyncio.get_running_loop()
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self.handle_exit, number, None)
        except (RuntimeError, ValueError):
            yield  # not the main thread: the caller sets `should_exit`
            return
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise _listen_fault(host, port, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Inherited by connections. Without it, a response in two writes waits 40 ms for the client's ACK.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)  # at once: two sockets may be bound to a port, but only one may listen
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortTaken(
                f"Port {port} on {host} is taken by another program.",
                advice="Stop it, or choose another port with --port (or CODESDK_PORT); 0 takes any free one.",
            ) from error
        raise _listen_fault(host, port, error) from error
    return listener


def _listen_fault(host: str, port: int, error: OSError) -> CannotListen:
    return CannotListen(
        f"Cannot listen on {host} port {port}: {error.strerror or error}.",
        advice="Choose another with --host and --port (or CODESDK_HOST and CODESDK_PORT).",
    )


def _url(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 (compared, not bound)
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"
