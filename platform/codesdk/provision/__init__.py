"""Provides what the product needs from the machine: a Docker engine, a Redis server, base images.

`codesdk demo`, `codesdk up`, `codesdk doctor` and the test suite call these. Each `ensure` uses what already runs and
changes nothing about it. It installs or starts something only if nothing answers, and prints that first.
"""

from __future__ import annotations
