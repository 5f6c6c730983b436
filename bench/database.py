"""The second database of a bench: its own PostgreSQL with durable commits, or the reason why there is none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from codesdk.errors import Fault
from from_tests import postgres_cluster

Say = Callable[[str], None]


@contextmanager
def postgresql(say: Say) -> Iterator[postgres_cluster.PostgresServer | Fault]:
    """Yield a running PostgreSQL, or the fault, which is printed too, if programs are missing or it does not start."""
    place = Path(tempfile.mkdtemp(prefix="codesdk-pg-"))
    try:
        server = postgres_cluster.ensure(place, say, durable=True)
    except Fault as fault:
        shutil.rmtree(place, ignore_errors=True)
        say(f"not on PostgreSQL: {fault}")
        yield fault
        return
    try:
        yield server
    finally:
        server.stop()
