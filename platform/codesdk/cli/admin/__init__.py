"""Administration commands: over HTTP if a daemon runs, otherwise directly on the database."""

from codesdk.cli.admin.client import AdminClient, HostChange, tenant_of
from codesdk.cli.admin.connect import open_admin_client
from codesdk.cli.admin.database_client import DATA_DIRECTORY_PRINCIPAL, DatabaseAdminClient
from codesdk.cli.admin.http_client import HttpAdminClient

__all__ = [
    "DATA_DIRECTORY_PRINCIPAL",
    "AdminClient",
    "DatabaseAdminClient",
    "HostChange",
    "HttpAdminClient",
    "open_admin_client",
    "tenant_of",
]
