"""Administration from the command line: over HTTP where a daemon runs, else on the data directory itself."""

from codesdk.cli.office.direct import HOLDER, DirectOffice
from codesdk.cli.office.office import HostChange, Office, tenant_of
from codesdk.cli.office.opening import open_office
from codesdk.cli.office.remote import RemoteOffice

__all__ = ["HOLDER", "DirectOffice", "HostChange", "Office", "RemoteOffice", "open_office", "tenant_of"]
