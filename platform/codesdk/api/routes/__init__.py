"""The API's routes, one module per resource."""

from codesdk.api.routes import (
    approval_pages,
    approvals,
    artifacts,
    audit,
    calls,
    catalog,
    events,
    files,
    grants,
    hosts,
    policy,
    policy_versions,
    principals,
    sessions,
    tenants,
    webhooks,
)

ROUTERS = (
    catalog.router,
    sessions.router,
    events.router,
    calls.router,
    files.router,
    approvals.router,
    approval_pages.router,
    grants.router,
    artifacts.router,
    policy.router,
    policy_versions.router,
    tenants.router,
    principals.router,
    webhooks.router,
    audit.router,
    hosts.router,
)
