"""What the bench shares with the tests: a PostgreSQL server of its own, and an engine with gVisor."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

import gvisor
import postgres_cluster

__all__ = ["gvisor", "postgres_cluster"]
