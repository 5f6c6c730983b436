"""Quantities with units: `512MiB`, `10m`."""

from __future__ import annotations

import re
from dataclasses import dataclass

_AMOUNT = re.compile(r"([0-9]{1,9}) ?([A-Za-z]{1,3})")


@dataclass(frozen=True)
class QuantityFormat:
    """The units of one kind of quantity."""

    units: dict[str, float]
    example: str

    def read(self, text: str) -> float:
        """Parse a quantity. The result is an int if it is whole.

        Raises:
            ValueError: with the accepted form.
        """
        found = _AMOUNT.fullmatch(text)
        factor = self.units.get(found[2]) if found else None
        if found is None or factor is None:
            units = ", ".join(self.units)
            raise ValueError(
                f"`{text[:40]}` is not a valid quantity; write a number, or one with a unit ({units}), such as {self.example}."
            )
        number = int(found[1]) * factor
        return int(number) if number == int(number) else number

    def schema(self) -> dict[str, str]:
        """Return the JSON Schema of a quantity."""
        return {"type": "string", "pattern": f"^[0-9]{{1,9}} ?({'|'.join(self.units)})$"}


SIZE = QuantityFormat({"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}, "512MiB")
"""Bytes."""
TIME = QuantityFormat({"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}, "10m")
"""Seconds."""
