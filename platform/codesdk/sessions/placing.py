"""Gives a new session its host: chosen by what is read, reserved under the host's lock."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from codesdk.domain.needs import need_of
from codesdk.hosts import store
from codesdk.hosts.placement import Nowhere, Placed, Want, lacking, place
from codesdk.sandbox.profile import Profile
from codesdk.sessions.session import NoHost


def place_session(connection: Connection, profile: Profile, labels: Mapping[str, str]) -> Placed:
    """The host for it. It stays reserved if the caller adds the session's sandbox in the same transaction.

    What is reserved is counted from the rows of sandboxes, so whatever ends one gives back what it took, once.

    Raises:
        NoHost: says what is missing.
    """
    want = Want(image=profile.image, labels=labels, need=need_of(profile.model_dump()))
    known = {host.id: host for host in store.listing(connection)}
    while True:
        placed = place(known.values(), want)
        if isinstance(placed, Nowhere):
            raise _no_host(placed, profile, labels)
        if not store.lock(connection, placed.host):
            return placed
        # Others may have come before us to the lock: what counts is what is there now.
        now = store.find(connection, placed.host)
        if now is not None and lacking(now, want) is None:
            return Placed(host=now.id, image=now.images[want.image])
        if now is None:
            del known[placed.host]
        else:
            known[placed.host] = now


_WORDS = {
    "draining": "drain",
    "lost": "are lost",
    "image": "lack the image",
    "labels": "lack a label that is asked for",
    "memory": "lack memory",
    "cpu": "lack CPU",
    "sessions": "have as many sessions as they may",
}


def _no_host(nowhere: Nowhere, profile: Profile, labels: Mapping[str, str]) -> NoHost:
    missing = nowhere.missing
    if set(missing) <= {"image"}:
        return NoHost(
            f"No worker offers the sandbox image {profile.image!r} of the profile {profile.name!r}.",
            advice=f"`codesdk up --profile {profile.name}` builds it where it can and starts a worker;"
            " `codesdk images list` says what is there.",
            details={"missing": missing},
        )
    said = "; ".join(f"{count} {_WORDS[what]}" for what, count in missing.items())
    asked = (
        f" (labels: {', '.join(f'{name}={value}' for name, value in labels.items())})" if "labels" in missing else ""
    )
    return NoHost(
        f"No host can take a session of the profile {profile.name!r} now. Of the hosts: {said}{asked}.",
        advice="Try again when sessions have ended, or have an operator look at `codesdk hosts list`.",
        details={"missing": missing},
    )
