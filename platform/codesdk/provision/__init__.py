"""What the product needs from the machine: a Docker engine, a Redis server, a base image, Node; found or made.

`codesdk demo`, `codesdk up`, `codesdk doctor` and the test suite call these. Each `ensure` uses what is there and
changes nothing about it; only where nothing answers does it install or start something, and it says so first.
"""

from __future__ import annotations
