"""Manages a tenant's endpoints and their delivery log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codesdk.domain.clock import Clock, to_rfc3339
from codesdk.domain.ids import DeliveryId, EndpointId, IdKind, Ids, PrincipalId, TenantId
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer
from codesdk.tenancy.access import AccessAllowed, Action, may_attempt
from codesdk.tenancy.identity_directory import IdentityDirectory
from codesdk.tenancy.principal import Unauthenticated
from codesdk.webhooks import store
from codesdk.webhooks.delivery import WINDOW_S, Delivery, DeliveryState, DeliveryUnknown, Message
from codesdk.webhooks.endpoint import (
    MAX_ENDPOINTS,
    TEST_TYPE,
    Endpoint,
    EndpointKind,
    EndpointLimitReached,
    EndpointUnknown,
    EndpointWithSecret,
    InvalidEndpoint,
    NewEndpoint,
    SigningKey,
)
from codesdk.webhooks.http_senders import new_secret
from codesdk.webhooks.outgoing_message import Sender
from codesdk.webhooks.secret_encryption import SecretCipher

TARGET_PURPOSE = "target:"
KEY_PURPOSE = "signing-key:"
"""Sealing purposes, as prefixes of the endpoint's id."""
OVERLAP_S = 24 * 3600.0
"""Default seconds for which a rotated key goes on signing."""
MAX_SIGNING_KEYS = 3


class EndpointService:
    """Safe to use from any thread. Each method acts for one tenant; the API checks permissions (`tenancy.access`)."""

    def __init__(
        self,
        *,
        database: Database,
        writer: Writer,
        clock: Clock,
        ids: Ids,
        seal: SecretCipher,
        directory: IdentityDirectory,
        senders: Mapping[EndpointKind, Sender],
    ) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._ids = ids
        self._seal = seal
        self._directory = directory
        self._senders = senders

    def create(self, tenant: TenantId, wish: NewEndpoint) -> EndpointWithSecret:
        """Create an endpoint; it gets events from now on.

        Raises:
            InvalidEndpoint: the target is not allowed, or the principal cannot approve.
            EndpointLimitReached: the tenant has `MAX_ENDPOINTS`.
        """
        self._check_principal(tenant, wish.principal_id)
        shown = self._senders[wish.kind].check(wish.target)
        now = self._now()
        secret = new_secret() if wish.kind is EndpointKind.WEBHOOK else None
        endpoint = Endpoint(
            id=EndpointId(self._ids.new(IdKind.ENDPOINT)),
            tenant_id=tenant,
            kind=wish.kind,
            target=shown,
            types=tuple(dict.fromkeys(wish.types)),
            principal_id=wish.principal_id,
            description=wish.description,
            signing_keys=(SigningKey(created_at=now),) if secret else (),
            created_at=now,
        )
        target = self._seal.close(wish.target, TARGET_PURPOSE + endpoint.id)
        keys = (self._seal_key(endpoint.id, secret, now),) if secret else ()

        def work(unit: Unit) -> None:
            there = store.listing(unit.connection, tenant)
            if len(there) >= MAX_ENDPOINTS:
                raise EndpointLimitReached(
                    f"This tenant has {MAX_ENDPOINTS} endpoints, the maximum.", advice="Remove one first."
                )
            if not any(each.disabled_at is None for each in there):
                store.reset_cursors(unit.connection, tenant)
            store.insert(unit.connection, endpoint, target, keys)

        self._writer.run(work)
        return EndpointWithSecret(endpoint=endpoint, secret=secret)

    def listing(self, tenant: TenantId) -> list[Endpoint]:
        """The tenant's endpoints, oldest first."""
        with self._database.read() as connection:
            return store.listing(connection, tenant)

    def find(self, tenant: TenantId, endpoint: str) -> Endpoint:
        """One endpoint.

        Raises:
            EndpointUnknown: not there, or another tenant's.
        """
        return self._load(tenant, endpoint).endpoint

    def delete(self, tenant: TenantId, endpoint: str) -> Endpoint:
        """Delete an endpoint with its pending deliveries and its log.

        Raises:
            EndpointUnknown: see `find`.
        """
        found = self.find(tenant, endpoint)
        self._writer.run(lambda unit: store.remove(unit.connection, found.id))
        return found

    def rotate(self, tenant: TenantId, endpoint: str, overlap_s: float = OVERLAP_S) -> EndpointWithSecret:
        """Rotate the signing key; the old one goes on signing for `overlap_s` seconds.

        Raises:
            EndpointUnknown: see `find`. InvalidEndpoint: messages of this kind are not signed.
        """
        now, secret = self._now(), new_secret()
        found = self._load(tenant, endpoint)
        if found.endpoint.kind is not EndpointKind.WEBHOOK:
            raise InvalidEndpoint(
                f"Messages of kind {found.endpoint.kind.value} are not signed; create a new endpoint."
            )

        def work(unit: Unit) -> Endpoint:
            keys = self._load_in_unit(unit, tenant, endpoint).keys
            kept = [
                key if key.retires_at is not None else key._replace(retires_at=now + overlap_s)
                for key in keys
                if key.retires_at is None or key.retires_at > now
            ]
            fresh = (self._seal_key(found.endpoint.id, secret, now), *kept)[:MAX_SIGNING_KEYS]
            store.set_keys(unit.connection, found.endpoint.id, fresh)
            return self._load_in_unit(unit, tenant, endpoint).endpoint

        return EndpointWithSecret(endpoint=self._writer.run(work), secret=secret)

    def enable(self, tenant: TenantId, endpoint: str) -> Endpoint:
        """Enable an endpoint: pending deliveries are sent; events from the time it was disabled are not.

        Raises:
            EndpointUnknown: see `find`.
        """
        found = self.find(tenant, endpoint)

        def work(unit: Unit) -> Endpoint:
            if not store.enabled_endpoints(unit.connection, tenant):
                store.reset_cursors(unit.connection, tenant)
            store.set_disabled(unit.connection, found.id, None, None)
            return self._load_in_unit(unit, tenant, endpoint).endpoint

        return self._writer.run(work)

    def disable(self, tenant: TenantId, endpoint: str, reason: str) -> Endpoint:
        """Disable an endpoint; pending deliveries wait until it is enabled, or expire.

        Raises:
            EndpointUnknown: see `find`.
        """
        found, now = self.find(tenant, endpoint), self._now()

        def work(unit: Unit) -> Endpoint:
            store.set_disabled(unit.connection, found.id, now, reason)
            return self._load_in_unit(unit, tenant, endpoint).endpoint

        return self._writer.run(work)

    def test(self, tenant: TenantId, endpoint: str) -> Delivery:
        """Queue a message of type `webhook.test`.

        Raises:
            EndpointUnknown: see `find`. InvalidEndpoint: it is disabled.
        """
        found = self.find(tenant, endpoint)
        if found.disabled_at is not None:
            raise InvalidEndpoint("This endpoint is disabled.", advice="Enable it with `codesdk webhooks enable`.")
        moment = self._clock.now()
        now = moment.timestamp()
        delivery = Delivery(
            id=DeliveryId(self._ids.new(IdKind.DELIVERY)),
            endpoint_id=found.id,
            tenant_id=tenant,
            type=TEST_TYPE,
            state=DeliveryState.PENDING,
            created_at=now,
            due_at=now,
            until=now + 60.0,
        )
        message = Message(type=TEST_TYPE, timestamp=to_rfc3339(moment), data={"endpoint_id": found.id})
        self._writer.run(lambda unit: store.add(unit.connection, delivery, message))
        return delivery

    def deliveries(
        self, tenant: TenantId, endpoint: str, state: DeliveryState | None, before: str | None, limit: int
    ) -> list[Delivery]:
        """The endpoint's deliveries, newest first.

        Raises:
            EndpointUnknown: see `find`.
        """
        found = self.find(tenant, endpoint)
        with self._database.read() as connection:
            return store.deliveries(connection, found.id, state, before, limit)

    def delivery(self, tenant: TenantId, endpoint: str, delivery: str) -> Delivery:
        """One delivery.

        Raises:
            EndpointUnknown, DeliveryUnknown: not there, or another tenant's.
        """
        found = self.find(tenant, endpoint)
        with self._database.read() as connection:
            there = store.delivery(connection, found.id, delivery)
        if there is None:
            raise DeliveryUnknown(f"There is no delivery {delivery} to this endpoint.")
        return there[0]

    def replay(self, tenant: TenantId, endpoint: str, delivery: str) -> Delivery:
        """Send a delivery again under the same id, in any state; failures are retried for another day.

        Raises:
            EndpointUnknown, DeliveryUnknown: see `delivery`.
        """
        found, now = self.delivery(tenant, endpoint, delivery), self._now()
        self._writer.run(lambda unit: store.requeue(unit.connection, found.id, now, now + WINDOW_S))
        return self.delivery(tenant, endpoint, delivery)

    def forget(self, days: float, limit: int = 1000) -> int:
        """Remove finished deliveries older than `days`; returns how many."""
        before = self._now() - days * 24 * 3600.0
        forget: Callable[[Unit], int] = lambda unit: store.forget(unit.connection, before, limit)  # noqa: E731
        return self._writer.run(forget)

    def _check_principal(self, tenant: TenantId, principal: PrincipalId | None) -> None:
        if principal is None:
            return
        unfit = InvalidEndpoint(
            f"{principal} is not an approver of this tenant.",
            advice="Name a principal with the role approver, by its id (`codesdk keys list` shows them).",
        )
        try:
            found = self._directory.active_principal(principal)
        except Unauthenticated as barred:
            raise unfit from barred
        if found.tenant_id != tenant or not isinstance(may_attempt(found, Action.APPROVALS_DECIDE), AccessAllowed):
            raise unfit

    def _load(self, tenant: TenantId, endpoint: str) -> store.StoredEndpoint:
        with self._database.read() as connection:
            return _require(store.find(connection, tenant, endpoint), endpoint)

    @staticmethod
    def _load_in_unit(unit: Unit, tenant: TenantId, endpoint: str) -> store.StoredEndpoint:
        return _require(store.find(unit.connection, tenant, endpoint), endpoint)

    def _seal_key(self, endpoint: str, secret: str, now: float) -> store.SealedKey:
        return store.SealedKey(self._seal.close(secret, KEY_PURPOSE + endpoint), now, None)

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _require(found: store.StoredEndpoint | None, endpoint: str) -> store.StoredEndpoint:
    if found is None:
        raise EndpointUnknown(f"There is no endpoint {endpoint}.")
    return found
