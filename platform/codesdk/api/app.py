"""The ASGI application: the routes, the MCP host on `/mcp`, and their background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from anyio import to_thread
from fastapi import FastAPI
from starlette.routing import Route

from codesdk.api.approval_links import ApprovalLinks
from codesdk.api.approval_stream import FeedPoller
from codesdk.api.event_stream import OpenStreams
from codesdk.api.origins import DirectRoute, HostHeaderCheck, host_names
from codesdk.api.problems import install_handlers
from codesdk.api.routes import ROUTERS
from codesdk.api.routes.approval_pages import answer_throttle
from codesdk.api.tenant_slots import TenantSlots
from codesdk.api.unfinished_uploads import UnfinishedUploads
from codesdk.archive.retention import DAY_S, Retention
from codesdk.bootstrap import Services
from codesdk.errors import Fault
from codesdk.eventlog.audit.log_sealing import Sealer
from codesdk.mcphost import McpHost
from codesdk.mcphost.instructions import session_instructions
from codesdk.mcphost.server.protected_resource import ProtectedResource
from codesdk.settings import Settings

POLL_S = 1.0
"""Seconds between checks for expired approvals: the maximum delay before a waiting agent learns of it."""
MAINTENANCE_S = 3600.0
"""Seconds between runs of retention, sealing and garbage collection."""

_log = logging.getLogger(__name__)


def create_app(services: Services, settings: Settings, url: str = "") -> FastAPI:
    """Create the application over `services`, which the caller closes afterwards.

    `url`: the address it listens on, for links if no public URL is set.
    """
    names = host_names(settings.host, settings.names())
    base_url = settings.public_url or url
    shown = ApprovalLinks(services.one_time_links, services.writer, base_url, look_only=True)
    # Anyone who sees a deciding link can answer with it, so clients get one only if they are trusted with the answer.
    deciding = ApprovalLinks(services.one_time_links, services.writer, base_url, look_only=False)
    mcp = McpHost(
        pipeline=services.pipeline,
        registry=services.registry,
        bundles=services.bundles,
        results=services.results,
        approval_service=services.approvals,
        admit=services.authenticator.subject,
        resource=ProtectedResource(
            settings.public_url,
            lambda: [issuer.issuer for issuer in services.logins.issuers],
            lambda: [scope for issuer in services.logins.issuers for scope in issuer.scopes],
        ),
        artifacts=services.artifacts,
        instructions=lambda subject: session_instructions(
            services.sessions.profile(subject.session_id), None if settings.is_local else settings.images_dir
        ),
        tail=services.tail,
        head=services.log.head,
        read_only_hints=settings.read_only_hints,
        clock=services.clock,
        wait_s=settings.wait_s,
        gone_client_grace_s=settings.gone_client_grace_s,
        state_key=settings.resolved_sealing_key,
        forms=settings.trust_clients,
        link=deciding if settings.trust_clients else shown,
        shown=shown,  # agents read it, and no agent may decide
    )
    readers = OpenStreams(settings.streams_of_tenant)
    delivery_workers = services.outbound.delivery_workers(base_url)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with mcp.run():
            background = [
                asyncio.create_task(_approval_expiry_loop(services)),
                asyncio.create_task(_maintenance_loop(services, settings)),
                asyncio.create_task(_lost_host_loop(services)),
            ]
            delivery_workers.start()
            try:
                yield
            finally:
                for task in background:
                    task.cancel()
                await asyncio.wait(background)
                await to_thread.run_sync(delivery_workers.stop)

    def stop() -> None:
        mcp.stop()
        readers.close()

    app = FastAPI(
        title="CodeSDK",
        version=version("codesdk"),
        lifespan=lifespan,
        docs_url=None,  # its page would load external scripts
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.mcp = mcp
    app.state.readers = readers
    app.state.tenant_slots = TenantSlots()
    app.state.unfinished_uploads = UnfinishedUploads(settings.upload_bytes_of_tenant)
    app.state.answer_throttle = answer_throttle(services.clock)
    app.state.poller = FeedPoller(services.approvals.feeds, settings.poll_s)
    app.state.stop = stop
    install_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(Route("/mcp", endpoint=mcp.app))  # for the list of routes; requests go through DirectRoute
    app.add_middleware(DirectRoute, path="/mcp", behind=mcp.app, names=names)
    app.add_middleware(HostHeaderCheck, names=names)
    return app


async def _approval_expiry_loop(services: Services) -> None:
    def expire() -> None:
        services.deferred_approvals.expire_overdue()
        services.approval_flow.expire_overdue()

    while True:
        await asyncio.sleep(POLL_S)
        try:
            await to_thread.run_sync(expire)
        except Fault as fault:
            _log.warning("could not expire overdue approvals: %s", fault)


async def _lost_host_loop(services: Services) -> None:
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await to_thread.run_sync(services.lost_hosts.tend)
        except Fault as fault:
            _log.warning("could not check for lost hosts: %s", fault)


async def _maintenance_loop(services: Services, settings: Settings) -> None:
    retention = Retention(
        database=services.database, writer=services.writer, artifacts=services.artifacts, clock=services.clock
    )
    sealer = Sealer(services.database, services.writer, services.clock)

    def work() -> None:
        if settings.retention_days:
            reason = f"closed for more than {settings.retention_days:g} days"
            retention.prune(settings.retention_days * DAY_S, reason=reason)
        sealer.seal()
        services.collector.collect()
        services.outbound.endpoints.forget(settings.webhook_log_days)

    while True:
        await asyncio.sleep(MAINTENANCE_S)
        try:
            await to_thread.run_sync(work)
        except Fault as fault:
            _log.warning("retention, sealing or garbage collection failed: %s", fault)
