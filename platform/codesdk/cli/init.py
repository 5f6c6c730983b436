"""`codesdk init`: the data directory, the default tenant, and the operator's key, shown once."""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from codesdk.bootstrap.administration import Tenancy, open_tenancy
from codesdk.cli.places import settings_of
from codesdk.cli.stack.operator import held_key, hold_key
from codesdk.cli.voice import Voice
from codesdk.tenancy.founding import OPERATOR
from codesdk.tenancy.keys import NewKey
from codesdk.tenancy.principal import Unauthenticated
from codesdk.tenancy.tenant import DEFAULT_TENANT


def run(*, rotate: bool, data_dir: Path | None, as_json: bool) -> None:
    """Make it and say the key.

    Raises:
        AlreadyFounded: there is an operator, and `rotate` was not asked for.
        DataDirUnusable, StorageUnavailable: with what to do.
    """
    voice = Voice(as_json=as_json)
    settings = settings_of(data_dir)
    with open_tenancy(settings) as (tenancy, writer):
        kept = _holder(tenancy, held_key(settings.data_dir))
        made = writer.run(lambda unit: tenancy.founding.found(unit, rotate=rotate))
    if kept == made.key.principal_id:  # commands on this machine would be locked out with the old key
        hold_key(settings.data_dir, made.secret)
    if as_json:
        voice.give({"data_dir": str(settings.data_dir), "tenant": DEFAULT_TENANT, **made.model_dump(mode="json")})
        return
    voice.say(f"Ready: {settings.data_dir}, with the tenant {DEFAULT_TENANT} and its principal {OPERATOR}")
    show_key(voice, made, "The operator's API key")


def show_key(voice: Voice, made: NewKey, what: str) -> None:
    """For people: the key alone on a line of stdout, all else on stderr."""
    voice.say(f"{what} ({made.key.id}) is shown this once. Keep it: only its hash is stored.")
    voice.out.print(Text(made.secret), soft_wrap=True)


def _holder(tenancy: Tenancy, key: str) -> str | None:
    try:
        return tenancy.directory.principal(key).id if key else None
    except Unauthenticated:
        return None
