"""`python -m codesdk.cli`, the same as `codesdk`."""

from __future__ import annotations

from codesdk.cli import main

main()
