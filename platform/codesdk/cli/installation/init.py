"""`codesdk init`: creates the data directory, the default tenant and the operator's key, which is printed once."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from codesdk.bootstrap.admin_services import AdminServices, open_admin_services
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.stack.operator_key import read_key, write_key
from codesdk.tenancy.first_operator import OPERATOR
from codesdk.tenancy.keys import NewKey
from codesdk.tenancy.principal import Unauthenticated
from codesdk.tenancy.tenant import DEFAULT_TENANT


def run(*, rotate: bool, data_dir: Path | None, as_json: bool) -> None:
    """Create the operator and print its key.

    Raises:
        AlreadyFounded: there is an operator, and `rotate` is not set.
        DataDirUnusable, StorageUnavailable: with advice.
    """
    printer = Printer(as_json=as_json)
    settings = load_settings(data_dir)
    with open_admin_services(settings) as (tenancy, writer):
        kept = _key_owner(tenancy, read_key(settings.data_dir))
        made = writer.run(lambda unit: tenancy.operator_setup.found(unit, rotate=rotate))
    if kept == made.key.principal_id:  # the old key would lock commands on this machine out
        write_key(settings.data_dir, made.secret)
    if as_json:
        printer.emit({"data_dir": str(settings.data_dir), "tenant": DEFAULT_TENANT, **made.model_dump(mode="json")})
        return
    printer.progress(f"Ready: {settings.data_dir}, with the tenant {DEFAULT_TENANT} and its principal {OPERATOR}")
    show_key(printer, made, "The operator's API key")


def show_key(printer: Printer, made: NewKey, what: str) -> None:
    """Print for people: the key alone on stdout, everything else on stderr."""
    printer.progress(f"{what} ({made.key.id}) is shown only once. Keep it: only its hash is stored.")
    printer.out.print(Text(made.secret), soft_wrap=True)


def _key_owner(tenancy: AdminServices, key: str) -> str | None:
    try:
        return tenancy.directory.principal(key).id if key else None
    except Unauthenticated:
        return None
