"""Finds the API: by arguments, by environment, or as the daemon that runs on this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from codesdk.errors import ExitCode, Fault
from codesdk.settings import read_settings, runfile
from codesdk.settings.operator_key import operator_key

URL_VARIABLE = "CODESDK_API_URL"
KEY_VARIABLE = "CODESDK_API_KEY"


class NoConnection(Fault):
    """No address of an API is known, or no key for it."""

    code = "NO_CONNECTION"
    status = 503
    exit_code = ExitCode.UNAVAILABLE


class Connection(NamedTuple):
    """An API's address, and a key for it."""

    url: str
    key: str


def find_connection(url: str | None, key: str | None, data_dir: Path | None) -> Connection:
    """The connection from arguments, else from the environment, else of the daemon that runs on `data_dir`.

    Raises:
        NoConnection: there is no address or no key. NoOperatorKey: the daemon's key can't be read.
    """
    url = url or os.environ.get(URL_VARIABLE) or None
    key = key or os.environ.get(KEY_VARIABLE) or None
    if url is not None and key is None:
        raise NoConnection(
            f"There is no API key for {url}.",
            advice=f"Pass `api_key`, or set {KEY_VARIABLE}; `codesdk keys create` makes one.",
        )
    if url is not None and key is not None:
        return Connection(url.rstrip("/"), key)
    settings = read_settings(**({"data_dir": data_dir} if data_dir is not None else {}))
    running = runfile.read(settings.data_dir, "api")
    if running is None:
        raise NoConnection(
            f"CodeSDK is not running on {settings.data_dir}, and no address is set.",
            advice=f"Start it with `codesdk up`, use `codesdk.embedded()`, or set {URL_VARIABLE} and {KEY_VARIABLE}.",
        )
    return Connection(str(running["url"]), key or operator_key(settings.data_dir, settings.operator_key_file))
