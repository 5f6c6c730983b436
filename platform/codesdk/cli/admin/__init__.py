"""Administration commands: over HTTP if a daemon runs on the data directory, otherwise directly on the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from codesdk.bootstrap.admin_services import open_admin_services
from codesdk.cli.admin.client import AdminClient, HostChange, tenant_of
from codesdk.cli.admin.database_client import DATA_DIRECTORY_PRINCIPAL, DatabaseAdminClient
from codesdk.cli.admin.http_client import HttpAdminClient
from codesdk.cli.api_client import NotRunning, connect
from codesdk.settings import Settings, runfile

__all__ = [
    "DATA_DIRECTORY_PRINCIPAL",
    "AdminClient",
    "DatabaseAdminClient",
    "HostChange",
    "HttpAdminClient",
    "open_admin_client",
    "tenant_of",
]


@contextmanager
def open_admin_client(settings: Settings) -> Iterator[AdminClient]:
    """Open the client of the running daemon, or of the database if none runs.

    Raises:
        NotRunning: there is neither a daemon nor a database.
        NoOperatorKey: a daemon runs, but its key can't be read.
    """
    if runfile.read(settings.data_dir, "api") is not None:
        with connect(settings) as daemon:
            yield HttpAdminClient(daemon)
        return
    if not settings.has_database():
        raise NotRunning(
            f"There is no installation in {settings.data_dir}.",
            advice="Create one with `codesdk init` or `codesdk up`, or name another --data-dir.",
        )
    with open_admin_services(settings) as (tenancy, _):
        yield DatabaseAdminClient(tenancy.administration, tenancy.hosts, tenancy.mcp_servers)
