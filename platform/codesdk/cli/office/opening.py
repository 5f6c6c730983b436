"""Which way administration goes: whether a daemon runs on the data directory decides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from codesdk.bootstrap.administration import open_tenancy
from codesdk.cli.daemon import NotRunning, connect
from codesdk.cli.office.direct import DirectOffice
from codesdk.cli.office.office import Office
from codesdk.cli.office.remote import RemoteOffice
from codesdk.settings import Settings, runfile


@contextmanager
def open_office(settings: Settings) -> Iterator[Office]:
    """The daemon's, where one runs on this data directory; else the directory's own.

    Raises:
        NotRunning: there is neither a daemon nor a database.
        NoOperatorKey: a daemon runs, and its key cannot be read.
    """
    if runfile.read(settings.data_dir, "api") is not None:
        with connect(settings) as daemon:
            yield RemoteOffice(daemon)
        return
    if not settings.database_url and not (settings.data_dir / "codesdk.db").exists():
        raise NotRunning(
            f"There is no installation in {settings.data_dir}.",
            advice="Make one with `codesdk init` or `codesdk up`, or name another --data-dir.",
        )
    with open_tenancy(settings) as (tenancy, _):
        yield DirectOffice(tenancy.administration, tenancy.hosts, tenancy.servers)
