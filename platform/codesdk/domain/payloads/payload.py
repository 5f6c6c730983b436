"""The base of event payloads."""

from __future__ import annotations

from typing import Any, ClassVar

from codesdk.domain.events import EventType
from codesdk.domain.model import FrozenModel


class Payload(FrozenModel):
    """Writers build it strictly; readers ignore keys that they do not know (`payloads.read_payload`)."""

    event_type: ClassVar[EventType]
    """The one type of event that carries it."""

    def wire(self) -> dict[str, Any]:
        """As it is stored and sent: JSON values, without what is missing."""
        return self.model_dump(mode="json", exclude_none=True)
