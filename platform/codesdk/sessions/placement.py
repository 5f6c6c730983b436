"""Placement of a new session: picks a host and reserves room on it under the host's row lock."""

from __future__ import annotations

from collections.abc import Mapping

from codesdk.domain.sandbox_resources import profile_needs
from codesdk.hosts import store
from codesdk.hosts.placement import Placement, PlacementRequest, Unschedulable, place, unmet_requirement
from codesdk.sandbox.profiles.profile import Profile
from codesdk.sessions.session import NoHost
from codesdk.storage.writer import Unit


def place_session(unit: Unit, profile: Profile, labels: Mapping[str, str]) -> Placement:
    """Pick a host and hold its row lock until the transaction ends.

    Reservations are counted from the sandbox rows: the caller reserves by inserting the session's sandbox in the same
    transaction, and ending that sandbox releases the reservation.

    Raises:
        NoHost: no host fits; `details.missing` counts the hosts by reason.
    """
    connection = unit.connection
    want = PlacementRequest(image=profile.image, labels=labels, need=profile_needs(profile.model_dump()))
    known = {host.id: host for host in store.list_hosts(connection)}
    while True:
        placed = place(known.values(), want)
        if isinstance(placed, Unschedulable):
            raise _no_host(placed, profile, labels)
        if not store.lock(connection, placed.host):
            return placed
        # Another session may have taken the room while we waited for the lock: read the host again.
        now = store.find(connection, placed.host)
        if now is not None and unmet_requirement(now, want) is None:
            return Placement(host=now.id, image=now.images[want.image])
        if now is None:
            del known[placed.host]
        else:
            known[placed.host] = now


_REASONS = {
    "draining": "drain",
    "lost": "are lost",
    "image": "lack the image",
    "labels": "lack a required label",
    "memory": "lack memory",
    "cpu": "lack CPU",
    "sessions": "have reached their limit of sessions",
}


def _no_host(nowhere: Unschedulable, profile: Profile, labels: Mapping[str, str]) -> NoHost:
    missing = nowhere.missing
    if set(missing) <= {"image"}:
        return NoHost(
            f"No worker offers the sandbox image {profile.image!r} of the profile {profile.name!r}.",
            advice=f"`codesdk up --profile {profile.name}` builds it if possible and starts a worker;"
            " `codesdk images list` shows the images.",
            details={"missing": missing},
        )
    reasons = "; ".join(f"{count} {_REASONS[what]}" for what, count in missing.items())
    wanted = (
        f" (labels: {', '.join(f'{name}={value}' for name, value in labels.items())})" if "labels" in missing else ""
    )
    return NoHost(
        f"No host can take a session of the profile {profile.name!r} now. Of the hosts: {reasons}{wanted}.",
        advice="Try again when sessions have ended, or ask an operator to check `codesdk hosts list`.",
        details={"missing": missing},
    )
