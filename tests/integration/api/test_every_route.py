"""Every route, as every kind of caller, on its own tenant's objects and on another's: exactly what the table allows.

The routes are read from the application: a new one is tested automatically, and fails here until its parameters are
known.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute

from codesdk.api.access import ROUTE_RULES, RouteAuth
from codesdk.api.routes import ROUTERS
from codesdk.approvals.grants import store
from codesdk.domain.ids import IdKind, TenantId
from codesdk.storage.schema import hosts
from codesdk.tenancy.access import (
    AccessAllowed,
    AccessDenied,
    Action,
    RefusalReason,
    Target,
    decide_access,
    may_attempt,
)
from codesdk.tenancy.principal import Principal, Reach, Role

ROUTES = sorted(
    (method, route.path)
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute)
    for method in route.methods
    if ROUTE_RULES[method, route.path] is not RouteAuth.TICKET  # a person's pages: test_approval_page
    if not route.path.startswith("/.well-known/")  # not there where nobody logs in: test_logins
)
OURS, THEIRS, HQ = "walk-ours", "walk-theirs", "walk-hq"
CALLERS = {
    **{role.value: ((role,), Reach.TENANT) for role in Role},
    "everything": (tuple(Role), Reach.TENANT),
    "nothing": ((), Reach.TENANT),
    **{f"{role.value} of the installation": ((role,), Reach.INSTANCE) for role in Role},
}
SHARED = {"/health", "/v1/tools"}
"""What belongs to no tenant."""
ENDPOINT = {"target": "https://receiver.invalid/", "types": ["task.*"]}
BUNDLE = {
    "policy.yaml": "version: 1\ndefault: ask\nrules: [{id: no, effect: deny, tool: patch.apply}]\n",
    "tests/t.yaml": "version: 1\ncases: [{name: n, tool: patch.apply, input: {}, expect: deny}]\n",
}
NAMES_NONE = {
    ("POST", "/v1/tenants"),
    ("POST", "/v1/sessions"),
    ("GET", "/v1/tenants"),
    ("GET", "/v1/sessions"),
    ("GET", "/v1/policy"),
    ("POST", "/v1/policy/decide"),
    ("POST", "/v1/policy/explain"),
    ("GET", "/v1/grants"),
    ("GET", "/v1/policy/versions"),
    ("POST", "/v1/policy/diff"),
    ("POST", "/v1/policy/promote"),
    ("POST", "/v1/policy/rollback"),
    ("GET", "/v1/policy/shadow"),
    ("POST", "/v1/policy/shadow"),
    ("DELETE", "/v1/policy/shadow"),
    ("GET", "/v1/approvals/events"),
    ("GET", "/v1/approvals"),  # one may name a session, and a foreign one has none: see the tests below
    ("GET", "/v1/artifacts"),
    ("GET", "/v1/webhooks"),
    ("POST", "/v1/webhooks"),
}
"""What is done in the caller's tenant and is refused for no other's sake."""
FILES = "/v1/sessions/{session_id}/files"
CALLS = "/v1/sessions/{session_id}/calls"
OWN_ONLY = {("POST", "/v1/sessions/{session_id}/tokens"), ("POST", CALLS)} | {
    route for route in ROUTES if route[1].startswith(FILES)
}
"""What not even a colleague with the permission may do: see `test_sessions` and `test_files` for who may."""
NO_TENANTS = {route for route in ROUTES if route[1].startswith(("/v1/hosts", "/v1/mcp-servers", "/metrics"))}
"""What is done to things of the installation: the reach of the instance is all that it takes."""


class World:
    """Two tenants with one of everything; a verb that ends a thing gets a fresh one each time."""

    def __init__(self, stack: Any) -> None:
        self.stack = stack
        self.operators = {name: self.enroll(name, (Role.OPERATOR,), Reach.TENANT) for name in (OURS, THEIRS)}
        self.callers = {label: self.enroll(OURS, *what) for label, what in CALLERS.items()}
        self.things = {name: self.fill(name) for name in (OURS, THEIRS)}

    def enroll(self, tenant: str, roles: tuple[Role, ...], reach: Reach) -> tuple[Principal, str]:
        services = self.stack.services
        return services.writer.run(lambda unit: services.directory.enroll(unit, tenant, "walker", roles, reach=reach))

    def fill(self, tenant: str) -> dict[str, str]:
        operator, key = self.operators[tenant]
        with self.stack.http(key) as client:
            made = client.post("/v1/sessions", json={}).json()
            subject = self.stack.services.directory.subject(made["token"])
            asked = self.stack.services.pipeline.submit("workspace_exec", {"command": "make"}, subject)
            principal = client.post("/v1/principals", json={"name": "somebody", "roles": ["developer"]}).json()
            another = client.post("/v1/keys", json={"principal_id": principal["id"], "name": "k"}).json()
            artifact = self.upload(client)
            outward = self.endpoint(client)
        return {
            "session_id": made["session"]["id"],
            "call_id": asked.identity.tool_call_id,
            "approval_id": asked.approval_id,
            "artifact_id": artifact,
            "tenant_id": operator.tenant_id,
            "principal_id": principal["id"],
            "key_id": another["key"]["id"],
            "host_id": self.host(tenant),
            "grant_id": self.grant(operator.tenant_id, operator.id, asked.approval_id),
            **outward,
        }

    def host(self, name: str) -> str:
        row = {"name": name, "generation": 1, "heartbeat": 1, "images": "{}", "registered_at": 1.0, "left_at": 1.0}
        id_ = self.stack.services.ids.new(IdKind.HOST)
        with self.stack.services.database.writer.begin() as connection:
            connection.execute(hosts.insert(), {**row, "id": id_})
        return str(id_)

    def grant(self, tenant: str, principal: str, approval: str) -> str:
        services = self.stack.services
        row = {"tenant_id": tenant, "principal_id": principal, "approval_id": approval, "granted_by": principal}
        hashes = {"rules": {}, "behaviour_hash": "", "image": "", "tool": "workspace.exec", "reason": ""}
        id_ = services.ids.new(IdKind.GRANT)
        services.writer.run(lambda unit: store.insert(unit.connection, id_, 3600.0, **row, **hashes))
        return str(id_)

    @staticmethod
    def endpoint(client: httpx2.Client) -> dict[str, str]:
        made = client.post("/v1/webhooks", json=ENDPOINT).json()["endpoint"]["id"]
        return {"endpoint_id": made, "delivery_id": client.post(f"/v1/webhooks/{made}/test").json()["id"]}

    @staticmethod
    def upload(client: httpx2.Client) -> str:
        return str(client.post("/v1/artifacts", content=b"bytes").json()["id"])

    def request(self, method: str, path: str, of: str, **ids: str) -> tuple[str, dict[str, Any]]:
        """The request on that tenant's things; `ids` replace some of them."""
        things = {**self.things[of], **ids}
        names = re.findall(r"{(\w+)}", path)
        unknown = set(names) - set(things)
        assert not unknown, f"a route with new parameters: tell this test what {unknown} are"
        more: dict[str, Any] = {}
        if path in ("/v1/quotas", "/v1/principals", "/v1/groups", "/v1/keys", "/v1/audit") and (method, path) != (
            "POST",
            "/v1/keys",
        ):
            more["params"] = {"tenant_id": things["tenant_id"]}
        if path == "/v1/artifacts" or (path == "/v1/approvals" and method == "GET"):
            more["params"] = {"session_id": things["session_id"]}
        if path.startswith(FILES) and method != "POST":
            more["params"] = {"path": "file"}
        body = self.body(method, path, things)
        if body is not None:
            more["json"] = body
        return path.format(**{name: things[name] for name in names}), more

    def body(self, method: str, path: str, things: dict[str, str]) -> dict[str, Any] | None:
        bodies: dict[tuple[str, str], dict[str, Any]] = {
            ("POST", "/v1/sessions"): {},
            ("POST", "/v1/policy/decide"): {"tool": "workspace.read"},
            ("POST", "/v1/policy/explain"): {"tool": "workspace.read"},
            ("POST", "/v1/policy/diff"): {"files": BUNDLE},
            ("POST", "/v1/policy/promote"): {"files": BUNDLE},
            ("POST", "/v1/policy/rollback"): {"to_files": True},
            ("POST", "/v1/policy/shadow"): {"files": BUNDLE},
            ("POST", "/v1/approvals/{approval_id}/decision"): {"verdict": "reject", "digest": "sha256:" + "0" * 64},
            # Names that are taken: whoever may do it gets a conflict, and the walk makes nothing.
            ("POST", "/v1/tenants"): {"name": OURS},
            ("PATCH", "/v1/tenants/{tenant_id}"): {"weight": 2},
            ("PATCH", "/v1/quotas"): {"limits": {"sessions": 10_000}},
            ("POST", "/v1/principals"): {"name": "somebody", "roles": ["auditor"]},
            ("PATCH", "/v1/principals/{principal_id}/groups"): {"join": ["walkers"]},
            ("POST", CALLS): {"tool": "workspace.list", "detach": True},
            ("POST", f"{FILES}/move"): {"source": "a", "target": "b"},
            ("POST", "/v1/webhooks"): ENDPOINT,
            ("POST", "/v1/webhooks/{endpoint_id}/rotate"): {},
            ("POST", "/v1/webhooks/{endpoint_id}/disable"): {},
            ("POST", "/v1/keys"): {"principal_id": things["principal_id"], "name": "k"},
        }
        return bodies.get((method, path))

    def refresh(self, of: str, answer: httpx2.Response) -> None:
        """What a verb has ended is there again."""
        if answer.request.method == "GET" or not answer.is_success:
            return
        things = self.things[of]
        if answer.request.method == "DELETE" and things["artifact_id"] in str(answer.url):
            with self.stack.http(self.operators[of][1]) as client:
                things["artifact_id"] = self.upload(client)
        if answer.request.method == "DELETE" and things["endpoint_id"] in str(answer.url):
            with self.stack.http(self.operators[of][1]) as client:
                things.update(self.endpoint(client))
        with self.stack.services.database.writer.begin() as connection:
            for statement, id_ in (
                ("UPDATE principals SET disabled_at = NULL WHERE id = ?", things["principal_id"]),
                ("UPDATE api_keys SET revoked_at = NULL WHERE id = ?", things["key_id"]),
                ("UPDATE tenants SET suspended_at = NULL WHERE id = ?", things["tenant_id"]),
                ("UPDATE webhook_endpoints SET disabled_at = NULL WHERE id = ?", things["endpoint_id"]),
                ("UPDATE hosts SET state = 'active' WHERE id = ?", things["host_id"]),
            ):
                connection.exec_driver_sql(statement, (id_,))


@pytest.fixture(scope="module")
def world(standing) -> World:
    return World(standing)


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=lambda part: part)
@pytest.mark.parametrize("caller", CALLERS)
def test_each_caller_gets_from_each_route_what_the_table_says(world, method, path, caller):
    rule = ROUTE_RULES[method, path]
    principal, key = world.callers[caller]
    with world.stack.http(key) as client:
        for of in (OURS, THEIRS):
            where, more = world.request(method, path, of)
            answer = client.request(method, where, **more)
            world.refresh(of, answer)
            expected = said_by(rule, principal, path, method, world.things[of]["tenant_id"])
            got = heard(answer)
            assert got == expected, f"{caller}, {method} {path}, {of}: {answer.status_code} {answer.text[:300]}"


def said_by(rule: Action | RouteAuth, principal: Principal, path: str, method: str, tenant: str) -> str:
    if isinstance(rule, RouteAuth):
        return "in"
    if isinstance(may_attempt(principal, rule), AccessDenied):
        return "forbidden"
    if path in SHARED or (method, path) in NAMES_NONE | NO_TENANTS:
        return "in"
    match decide_access(principal, rule, Target(tenant_id=TenantId(tenant))):
        case AccessAllowed():
            return "unknown" if (method, path) in OWN_ONLY else "in"
        case AccessDenied(why=why):
            return "unknown" if why is RefusalReason.NOT_VISIBLE else "forbidden"


def heard(answer: httpx2.Response) -> str:
    if answer.status_code == 403:
        return "forbidden"
    if answer.status_code == 404:
        return "unknown"
    # A conflict is past the door: a vote on another digest, a name that is taken, one's own tenant.
    assert answer.status_code in (200, 201, 202, 409), answer.text
    return "in"


@pytest.fixture(scope="module")
def bad_keys(world) -> list[str]:
    """One that was revoked, one of a suspended tenant, one of a disabled principal, and one that never was."""
    holders = [world.enroll(tenant, tuple(Role), Reach.INSTANCE) for tenant in (OURS, HQ, OURS)]
    revoked, suspended, disabled = [holder for holder, _ in holders]
    with world.stack.services.database.writer.begin() as connection:
        for statement, id_ in (
            ("UPDATE api_keys SET revoked_at = 1 WHERE id = ?", revoked.key_id),
            ("UPDATE tenants SET suspended_at = 1 WHERE id = ?", suspended.tenant_id),
            ("UPDATE principals SET disabled_at = 1 WHERE id = ?", disabled.id),
        ):
            connection.exec_driver_sql(statement, (id_,))
    return [*[key for _, key in holders], "csdk_key_" + "A" * 43]


@pytest.mark.parametrize(
    ("method", "path"), [r for r in ROUTES if isinstance(ROUTE_RULES[r], Action)], ids=lambda part: part
)
def test_without_a_good_key_no_route_opens(world, bad_keys, method, path):
    where, more = world.request(method, path, OURS)
    answers = []
    for key in bad_keys:
        with world.stack.http(key) as client:
            answers.append(client.request(method, where, **more))
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.text for answer in answers}) == 1, "which of them it is must not be told"


def foreign_routes() -> Iterator[tuple[str, str, str]]:
    for method, path in ROUTES:
        for name in re.findall(r"{(\w+)}", path):
            yield method, path, name


@pytest.mark.parametrize(("method", "path", "name"), list(foreign_routes()), ids=lambda part: part)
def test_a_foreign_id_answers_word_for_word_as_one_that_does_not_exist(world, method, path, name):
    """For an operator of a tenant, in every parameter of a path, alone and with the rest of the path foreign too."""
    _, key = world.callers["everything"]
    ours, theirs = world.things[OURS], world.things[THEIRS]
    absent = theirs[name][:-4] + "0000"
    with world.stack.http(key) as client:
        for rest in (ours, theirs):
            answers = []
            for id_ in (theirs[name], absent):
                where, more = world.request(method, path, OURS, **{**rest, name: id_})
                answer = client.request(method, where, **more)
                words = answer.text
                for each in re.findall(r"{(\w+)}", path):
                    words = words.replace({**rest, name: id_}[each], "ID")
                headers = {k: v for k, v in answer.headers.items() if k not in ("date", "content-length")}
                answers.append((answer.status_code, words, headers))
            if ROUTE_RULES[method, path] in (Action.TENANTS_MANAGE, Action.HOSTS_READ, Action.HOSTS_MANAGE):
                assert answers[0][0] == 403  # not this caller's to do, whatever the id
            else:
                assert answers[0][0] == 404
            assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("method", "path", "where"),
    [
        ("GET", "/v1/approvals", "session_id"),
        ("GET", "/v1/artifacts", "session_id"),
        ("POST", "/v1/artifacts", "session_id"),
        ("GET", "/v1/quotas", "tenant_id"),
        ("GET", "/v1/principals", "tenant_id"),
        ("GET", "/v1/keys", "tenant_id"),
        ("GET", "/v1/groups", "tenant_id"),
        ("GET", "/v1/audit", "tenant_id"),
        ("POST", "/v1/principals", "tenant_id"),
    ],
)
def test_a_foreign_id_in_a_query_answers_as_one_that_does_not_exist(world, method, path, where):
    _, key = world.callers["everything"]
    foreign = world.things[THEIRS][where]
    absent = foreign[:-4] + "0000"
    body = world.body(method, path, world.things[OURS])
    said = []
    with world.stack.http(key) as client:
        for id_ in (foreign, absent):
            answer = client.request(method, path, params={where: id_}, **({"json": body} if body else {}))
            said.append((answer.status_code, answer.text.replace(id_, "ID")))
    assert said[0] == said[1]
    assert said[0][0] == 404 or json.loads(said[0][1]) in ({"approvals": []}, {"artifacts": []})


def test_a_foreign_seed_and_a_foreign_holder_do_not_exist(world):
    _, key = world.callers["everything"]
    theirs = world.things[THEIRS]
    with world.stack.http(key) as client:
        seed = client.post("/v1/sessions", json={"seed_artifact": theirs["artifact_id"]})
        holder = client.post("/v1/keys", json={"principal_id": theirs["principal_id"], "name": "k"})
    assert (seed.status_code, holder.status_code) == (404, 404)


def test_lists_hold_nothing_of_another_tenant(world):
    _, key = world.callers["everything"]
    theirs = set(world.things[THEIRS].values())
    with world.stack.http(key) as client:
        for method, path in ROUTES:
            if method == "GET" and "{" not in path:
                text = client.get(path).text
                assert not [id_ for id_ in theirs if id_ in text], path


def test_the_walk_left_the_other_tenant_as_it_was(world):
    theirs = world.things[THEIRS]
    services = world.stack.services
    assert services.sessions.find(theirs["tenant_id"], theirs["session_id"]).state == "open"
    assert services.approvals.find(theirs["tenant_id"], theirs["approval_id"]).state == "pending"
    assert services.pipeline.find(theirs["tenant_id"], theirs["session_id"], theirs["call_id"]).approval_id
