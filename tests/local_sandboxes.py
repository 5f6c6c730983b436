"""Local sandboxes of one test, each way in which this machine can have them."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codesdk.sandbox.local.confinement import Confinement, find
from codesdk.sandbox.local.driver import LocalSandboxes


def plain() -> Confinement:
    """Without a wall."""
    return find("")


@contextmanager
def local_sandboxes(found: Confinement) -> Iterator[LocalSandboxes]:
    """Sandboxes of an installation of their own; nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix="codesdk-local-") as folder:
        made = LocalSandboxes(f"test-{uuid.uuid4().hex}", Path(folder) / "local", found)
        try:
            yield made
        finally:
            made.sweep(())
            made.close()
