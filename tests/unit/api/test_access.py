"""The table of routes and roles."""

from __future__ import annotations

import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from codesdk.api.access import ROUTE_RULES, GuardedRoute, RouteAuth, RouteWithoutRule, guarded_router
from codesdk.api.app import create_app
from codesdk.api.routes import ROUTERS
from codesdk.bootstrap import Services
from codesdk.eventlog.hints import LocalHints
from codesdk.jobs import LocalWakeups
from codesdk.settings import Settings
from codesdk.tenancy.access import PERMISSIONS, Action
from codesdk.tenancy.principal import Role

GUARDED = [route for router in ROUTERS for route in router.routes]


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    services = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
    yield create_app(services, settings)
    services.close()


def test_every_route_has_a_rule_and_every_rule_a_route(app):
    bare = [route for route in app.routes if isinstance(route, Route) and not isinstance(route, APIRoute)]
    served = {(method, route.path) for route in GUARDED for method in route.methods}
    served |= {(method, route.path) for route in bare for method in (route.methods or {"*"}) - {"HEAD"}}
    assert served == set(ROUTE_RULES)


def test_every_route_that_a_role_opens_is_guarded(app):
    guarded = {(method, route.path) for route in GUARDED if isinstance(route, GuardedRoute) for method in route.methods}
    assert {route for route, rule in ROUTE_RULES.items() if not isinstance(rule, RouteAuth)} <= guarded


def test_the_application_serves_nothing_beside_these_routes(app):
    bare = {route.path for route in app.routes if isinstance(route, Route)}
    assert bare == {"/openapi.json", "/mcp"}
    assert len(app.routes) == len(bare) + len(ROUTERS)


def test_a_route_without_a_rule_cannot_be_made():
    router = guarded_router()
    with pytest.raises(RouteWithoutRule, match="/v1/secrets"):
        router.get("/v1/secrets")(lambda: None)
    with pytest.raises(RouteWithoutRule, match="PUT"):
        router.put("/v1/sessions")(lambda: None)


def test_only_what_is_meant_for_everybody_is_open():
    assert {route for route, rule in ROUTE_RULES.items() if rule is RouteAuth.OPEN} == {
        ("GET", "/health"),
        ("GET", "/openapi.json"),
        ("GET", "/.well-known/oauth-protected-resource"),
        ("GET", "/.well-known/oauth-protected-resource/mcp"),
    }
    assert {route for route, rule in ROUTE_RULES.items() if rule is RouteAuth.SESSION_TOKEN} == {("*", "/mcp")}


QUESTIONS = {Action.POLICY_DECIDE, Action.POLICY_EXPLAIN, Action.POLICY_DIFF}
"""Posted for their size; they change nothing."""


def test_an_auditor_changes_nothing_and_a_policy_author_only_which_policy_is_in_force():
    for (method, path), rule in ROUTE_RULES.items():
        if isinstance(rule, Action) and method not in {"GET", "HEAD"} and rule not in QUESTIONS:
            assert Role.AUDITOR not in PERMISSIONS[rule].roles, path
            assert rule is Action.POLICY_PROMOTE or Role.POLICY_AUTHOR not in PERMISSIONS[rule].roles, path


def test_what_only_looks_is_got_and_what_changes_something_is_not():
    for (method, path), rule in ROUTE_RULES.items():
        # A call may read or change the workspace by any method: policy decides.
        if isinstance(rule, Action) and rule not in QUESTIONS and rule is not Action.CALLS_MAKE:
            assert rule.value.endswith(".read") == (method in {"GET", "HEAD"}), path


def test_who_runs_calls_does_not_approve_them_by_that_role():
    assert Role.DEVELOPER not in PERMISSIONS[ROUTE_RULES["POST", "/v1/approvals/{approval_id}/decision"]].roles
