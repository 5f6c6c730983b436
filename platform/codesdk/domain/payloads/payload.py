"""The base class of event payloads."""

from __future__ import annotations

from typing import Any, ClassVar

from codesdk.domain.events import EventType
from codesdk.domain.model import FrozenModel


class Payload(FrozenModel):
    """Base of payloads. Writers build it strictly; readers ignore unknown keys (`payloads.read_payload`)."""

    event_type: ClassVar[EventType]
    """The type of event that has this payload."""

    def wire(self) -> dict[str, Any]:
        """Return the stored and sent form: JSON values, without missing ones."""
        return self.model_dump(mode="json", exclude_none=True)
