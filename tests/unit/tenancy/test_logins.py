"""Tokens of issuers: which are accepted, and the resulting principals."""

from __future__ import annotations

import base64
import json
from functools import partial

import jwt
import pytest

from codesdk.eventlog.audit import store as audit_store
from codesdk.sessions import SessionUnknown
from codesdk.sessions.authentication import SessionAuthenticator
from codesdk.tenancy.access import Forbidden
from codesdk.tenancy.logins import JwksCache, KeysUnavailable, LoginRefused, LoginService, LoginsInvalid, read_issuers
from codesdk.tenancy.logins.jwks import CACHE_S, MIN_REFETCH_S, STALE_S
from codesdk.tenancy.logins.tokens import ScopeMissing
from codesdk.tenancy.principal import Role, Unauthenticated
from issuers import Mint


@pytest.fixture(scope="module")
def shared():
    """Keys take a while to make."""
    return Mint()


@pytest.fixture
def mint(shared):
    made = Mint.__new__(Mint)
    made.__dict__ = {**shared.__dict__, "keys": dict(shared.keys), "asked": [], "away": False}
    return made


def logins(stage, mint, **more):
    return LoginService(
        partial(tuple, [mint.issuer(**more)]),
        JwksCache(mint.fetch, stage.clock.monotonic),
        database=stage.database,
        writer=stage.writer,
        quotas=stage.quotas,
        clock=stage.clock,
        ids=stage.ids,
    )


def now(stage):
    return stage.clock.now().timestamp()


def test_a_good_token_makes_a_principal_once_and_finds_it_again(stage, mint):
    desk = logins(stage, mint, name="email")
    first = desk.log_in(mint.token(now(stage), email="ada@example.com")).principal
    again = desk.log_in(mint.token(now(stage), email="other@example.com")).principal
    assert (first.name, first.roles, first.tenant_id) == (
        "ada@example.com",
        (Role.DEVELOPER,),
        stage.principal.tenant_id,
    )
    assert again == first
    assert desk.log_in(mint.token(now(stage), sub="u-2")).principal.id != first.id
    with stage.database.read() as connection:
        kept = audit_store.after(connection, first.tenant_id, 0, 10)
    assert (kept[0].act, kept[0].actor, kept[0].target) == ("principal.created", "login", first.id)
    assert kept[0].details["subject"] == "u-1"


def test_who_takes_a_name_at_an_issuer_does_not_look_like_somebody_here(stage, mint):
    desk = logins(stage, mint, name="email")
    found = desk.log_in(mint.token(now(stage), email=stage.principal.name)).principal
    assert found.name != stage.principal.name
    assert found.name.startswith(stage.principal.name + " ")
    assert desk.log_in(mint.token(now(stage), sub="x", email="<script>")).principal.name.startswith("login ")


def refused(stage, mint, token, match, **more):
    with pytest.raises(LoginRefused, match=match):
        logins(stage, mint, **more).log_in(token)


def encoded(part):
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def test_a_token_without_a_signature_is_refused(stage, mint):
    claims = encoded(mint.claims(now(stage)))
    for alg in ("none", "None", "NONE", ""):
        refused(stage, mint, f"{encoded({'alg': alg, 'kid': 'one'})}.{claims}.", "signature algorithm|cannot be read")


def test_a_token_signed_with_the_public_key_as_a_shared_secret_is_refused(stage, mint):
    # RFC 8725, 2.1: a checker that goes by the token's own `alg` would take the published key for an HMAC secret.
    import hashlib  # noqa: PLC0415
    import hmac  # noqa: PLC0415

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat  # noqa: PLC0415

    pem = mint.keys["one"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    said = f"{encoded({'alg': 'HS256', 'kid': 'one'})}.{encoded(mint.claims(now(stage)))}"
    mac = base64.urlsafe_b64encode(hmac.new(pem, said.encode(), hashlib.sha256).digest()).rstrip(b"=").decode()
    refused(stage, mint, f"{said}.{mac}", "signature algorithm")


@pytest.mark.parametrize(
    ("claims", "match"),
    [
        ({"aud": "https://other.example.com"}, "for another audience"),
        ({"aud": None}, "not valid"),
        ({"aud": ["https://other.example.com", "x"]}, "for another audience"),
        ({"iss": "https://evil.example.com"}, "does not accept logins"),
        ({"iss": "https://login.example.com/"}, "does not accept logins"),
        ({"iss": None}, "does not accept logins"),
        ({"sub": None}, "not valid"),
        ({"sub": ""}, "no subject"),
        ({"sub": "x" * 256}, "no subject"),
        ({"sub": "a\nb"}, "no subject"),
        ({"exp": None}, "not valid"),
        ({"exp": 0}, "expired"),
        ({"exp": "soon"}, "not a time|not valid"),
        ({"exp": float("nan")}, "not a time|not valid|cannot be read"),
        ({"exp": True}, "not a time|expired"),
    ],
)
def test_a_token_that_says_something_wrong_is_refused(stage, mint, claims, match):
    refused(stage, mint, mint.token(now(stage), **claims), match)


def test_times_are_judged_with_the_issuers_skew(stage, mint):
    at = now(stage)
    desk = logins(stage, mint, skew_s=30)
    desk.log_in(mint.token(at, exp=at - 29))
    desk.log_in(mint.token(at, nbf=at + 29))
    refused(stage, mint, mint.token(at, exp=at - 30), "expired", skew_s=30)
    refused(stage, mint, mint.token(at, nbf=at + 31), "not valid yet", skew_s=30)
    refused(stage, mint, mint.token(at, iat=at + 31), "not valid yet", skew_s=30)


def test_a_key_that_the_issuer_does_not_publish_is_refused_whatever_name_it_has(stage, mint):
    other = Mint()
    refused(stage, mint, other.token(now(stage)), "not valid")  # the kid of the issuer's, another key
    refused(stage, mint, mint.token(now(stage), kid="two", key=other.keys["one"]), "does not publish")
    jwk = {**other.jwks()["keys"][0], "kid": "one"}
    refused(stage, mint, other.token(now(stage), headers={"jwk": jwk}), "not valid")  # its own key in its head
    refused(stage, mint, other.token(now(stage), headers={"jku": "https://evil.example.com/jwks"}), "not valid")
    assert not any("evil" in url for url in mint.asked)


def test_two_keys_of_one_name_are_nobodys_and_a_token_without_a_name_must_leave_no_choice(stage, mint):
    logins(stage, mint).log_in(mint.token(now(stage), kid=None))
    mint.add("two")
    refused(stage, mint, mint.token(now(stage), kid=None), "does not publish")
    both = mint.jwks()
    mint.jwks = lambda: {"keys": [{**key, "kid": "one"} for key in both["keys"]]}
    refused(stage, mint, mint.token(now(stage)), "does not publish")


def test_a_key_is_used_for_its_own_algorithm_only(stage, mint):
    refused(stage, mint, mint.token(now(stage), alg="PS256"), "signature algorithm")
    mint.add_curve("curve")
    logins(stage, mint).log_in(mint.token(now(stage), kid="curve", alg="ES256"))
    plain = mint.jwks()
    for change in ({"alg": "RS512"}, {"use": "enc"}, {"kty": "oct", "k": "AAAA"}):
        mint.jwks = lambda change=change: {"keys": [{**plain["keys"][0], **change}]}
        refused(stage, mint, mint.token(now(stage)), "does not publish")


def test_a_short_rsa_key_is_none(stage, mint):
    mint.add("short", bits=1024)
    with pytest.warns(jwt.InsecureKeyLengthWarning):
        token = mint.token(now(stage), kid="short")
    refused(stage, mint, token, "does not publish")


def test_a_critical_header_another_kind_of_token_and_a_huge_one_are_refused(stage, mint):
    refused(stage, mint, mint.token(now(stage), headers={"crit": ["b64"], "b64": True}), "not supported|cannot be read")
    refused(stage, mint, mint.token(now(stage), headers={"typ": "logout+jwt"}), "not supported")
    refused(stage, mint, mint.token(now(stage), pad="x" * 9000), "more than")
    deep = "[" * 3000 + "]" * 3000
    payload = base64.urlsafe_b64encode(deep.encode()).rstrip(b"=").decode()
    refused(stage, mint, f"{encoded({'alg': 'RS256'})}.{payload}.AAAA", "cannot be read")


def test_keys_are_fetched_once_and_again_for_a_new_name_but_not_for_every_forged_one(stage, mint):
    desk = logins(stage, mint)
    for _ in range(3):
        desk.log_in(mint.token(now(stage)))
    assert mint.asked == [
        "https://login.example.com/.well-known/openid-configuration",
        "https://login.example.com/jwks",
    ]
    stage.clock.advance(MIN_REFETCH_S)
    mint.add("two")
    desk.log_in(mint.token(now(stage), kid="two"))
    fetched = len(mint.asked)
    for number in range(20):
        with pytest.raises(LoginRefused):
            desk.log_in(mint.token(now(stage), kid=f"forged-{number}", key=mint.keys["two"]))
    assert len(mint.asked) == fetched == 4


def test_a_key_that_was_taken_away_is_refused_after_the_next_fetch(stage, mint):
    desk = logins(stage, mint)
    token = mint.token(now(stage), exp=now(stage) + 2 * CACHE_S)
    desk.log_in(token)
    mint.add("two")
    del mint.keys["one"]
    stage.clock.advance(CACHE_S)
    with pytest.raises(LoginRefused, match="does not publish"):
        desk.log_in(token)


def test_an_issuer_that_is_away_lets_nobody_new_in_and_is_not_asked_for_each_token(stage, mint):
    mint.away = True
    desk = logins(stage, mint)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            desk.log_in(mint.token(now(stage)))
    assert len(mint.asked) == 1
    mint.away = False
    stage.clock.advance(MIN_REFETCH_S)
    desk.log_in(mint.token(now(stage)))
    mint.away = True
    stage.clock.advance(CACHE_S + 1)
    desk.log_in(mint.token(now(stage)))  # with the keys that it had
    stage.clock.advance(STALE_S)
    with pytest.raises(KeysUnavailable):
        desk.log_in(mint.token(now(stage)))


def test_what_an_issuer_says_about_itself_must_be_about_itself(stage, mint):
    plain = mint.fetch
    mint.fetch = lambda issuer, url: {**plain(issuer, url), "issuer": "https://other.example.com"}
    with pytest.raises(KeysUnavailable, match="another issuer's"):
        logins(stage, mint).log_in(mint.token(now(stage)))


def test_roles_and_tenant_follow_claims_that_the_operator_listed_and_nothing_else(stage, mint):
    mapped = {
        "roles": [],
        "roles_from": {
            "claim": ["realm", "roles"],
            "values": {"dev": ["developer"], "lead": ["developer", "approver"]},
        },
        "tenant": None,
        "tenants": {"claim": "org", "values": {"acme": "default"}},
    }
    desk = logins(stage, mint, **mapped)

    def enter(**claims):
        return desk.log_in(mint.token(now(stage), **claims)).principal

    dev = enter(org="acme", realm={"roles": ["dev", "operator"]})
    assert dev.roles == (Role.DEVELOPER,)
    lead = enter(org="acme", realm={"roles": ["lead"]})
    assert (lead.id, set(lead.roles)) == (dev.id, {Role.DEVELOPER, Role.APPROVER})
    assert stage.administration.principal(stage.enroll("default", "op", Role.OPERATOR)[0], dev.id).roles == lead.roles
    for claims in (
        {"org": "default", "realm": {"roles": "dev"}},
        {"realm": {"roles": "dev"}},
        {"org": "acme", "realm": {"roles": ["operator"]}},
        {"org": "acme", "realm": "dev"},
        {"org": "acme"},
    ):
        with pytest.raises(Forbidden):
            enter(**claims)


def test_a_scope_that_is_asked_for_must_be_there(stage, mint):
    desk = logins(stage, mint, scopes=["codesdk", "run"])
    desk.log_in(mint.token(now(stage), scope="openid run codesdk"))
    for scope in ("codesdk", "codesdkrun", None, ["codesdk", "run"]):
        with pytest.raises(ScopeMissing, match="run"):
            desk.log_in(mint.token(now(stage), scope=scope))


def test_who_was_disabled_or_whose_tenant_is_suspended_comes_in_no_more(stage, mint):
    desk = logins(stage, mint)
    found = desk.log_in(mint.token(now(stage))).principal
    stage.administration.disable(stage.enroll("default", "op", Role.OPERATOR)[0], found.id)
    with pytest.raises(LoginRefused):
        desk.log_in(mint.token(now(stage)))
    stage.sql("UPDATE tenants SET suspended_at = 1")
    for subject in ("u-1", "u-new"):
        with pytest.raises(LoginRefused):
            desk.log_in(mint.token(now(stage), sub=subject))
    stage.sql("UPDATE tenants SET suspended_at = NULL")


# -- sessions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def admission(stage, mint):
    desk = logins(stage, mint, session={"labels": {"by": "login"}, "permission_mode": "ask"})
    return SessionAuthenticator(directory=stage.directory, logins=desk, sessions=stage.sessions, writer=stage.writer)


def test_a_login_works_in_one_session_until_it_is_closed(stage, mint, admission):
    token = mint.token(now(stage))
    with pytest.raises(SessionUnknown):
        admission.subject(token, None, opens=False)
    first = admission.subject(token, None, opens=True)
    assert (first.labels, first.permission_mode, first.runtime) == ({"by": "login"}, "ask", "mcp-login")
    assert admission.subject(token, None, opens=False) == first
    assert admission.subject(mint.token(now(stage), sub="u-2"), None, opens=True).session_id != first.session_id
    stage.sessions.close(first.tenant_id, first.session_id)
    assert admission.subject(token, None, opens=True).session_id != first.session_id


def test_many_first_requests_at_once_open_one_session(stage, mint, admission):
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    token = mint.token(now(stage))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: admission.subject(token, None, opens=True).session_id, range(16)))
    assert len(set(found)) == 1
    assert len(stage.sessions.listing(stage.principal.tenant_id)) == 2  # and the stage's own


def test_a_session_is_named_by_its_own_principal_only(stage, mint, admission):
    mine = admission.subject(mint.token(now(stage)), None, opens=True)
    assert admission.subject(mint.token(now(stage)), mine.session_id, opens=False) == mine
    for named in (stage.session.id, "ses_none", "", f"{mine.session_id},{mine.session_id}"):
        with pytest.raises(SessionUnknown):
            admission.subject(mint.token(now(stage)), named, opens=True)
    with pytest.raises(SessionUnknown):
        admission.subject(mint.token(now(stage), sub="u-2"), mine.session_id, opens=True)


def test_an_api_key_opens_its_own_principals_sessions_by_name_and_nothing_without(stage, admission):
    assert admission.subject(stage.api_key, stage.session.id, opens=True) == stage.subject
    with pytest.raises(Unauthenticated, match="CodeSDK-Session"):
        admission.subject(stage.api_key, None, opens=True)
    _, other = stage.enroll("default", "other")
    with pytest.raises(SessionUnknown):
        admission.subject(other, stage.session.id, opens=True)


def test_a_sessions_token_opens_that_session_whatever_is_named(stage, admission):
    assert admission.subject(stage.token, stage.session.id, opens=True) == stage.subject
    with pytest.raises(SessionUnknown):
        admission.subject(stage.token, "ses_other", opens=True)


def test_a_token_that_is_looked_at_again_takes_back_nothing_of_a_later_one(stage, mint):
    roles = {"claim": "groups", "values": {"dev": ["developer"], "lead": ["developer", "approver"]}}
    desk = logins(stage, mint, roles=[], roles_from=roles)
    admission = SessionAuthenticator(
        directory=stage.directory, logins=desk, sessions=stage.sessions, writer=stage.writer
    )
    lead, dev = (mint.token(now(stage), groups=[group]) for group in ("lead", "dev"))
    assert set(admission.subject(lead, None, opens=True).roles) == {"developer", "approver"}
    found = admission.subject(dev, None, opens=True)
    with stage.database.read() as connection:
        kept = len(audit_store.after(connection, found.tenant_id, 0, 100))
    # A stream of the first token is still open: it is good, and gives nobody a role.
    assert admission.subject(lead, None, opens=False, again=True) == found
    assert found.roles == ("developer",)
    with pytest.raises(LoginRefused):
        admission.subject(mint.token(now(stage), sub="u-new", groups=["lead"]), None, opens=False, again=True)
    with stage.database.read() as connection:
        assert len(audit_store.after(connection, found.tenant_id, 0, 100)) == kept


def test_a_login_that_may_run_nothing_opens_nothing(stage, mint):
    desk = logins(stage, mint, roles=["auditor"])
    admission = SessionAuthenticator(
        directory=stage.directory, logins=desk, sessions=stage.sessions, writer=stage.writer
    )
    before = len(stage.sessions.listing(stage.principal.tenant_id))
    with pytest.raises(Forbidden):
        admission.subject(mint.token(now(stage)), None, opens=True)
    assert len(stage.sessions.listing(stage.principal.tenant_id)) == before


# -- the file ---------------------------------------------------------------------------------------------------------

GOOD = """
version: 1
issuers:
  - issuer: https://login.example.com
    audience: https://codesdk.example.com/mcp
    tenant: default
    roles: [developer]
"""


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (("[developer]", "[operator]"), "role operator"),
        (("[developer]", "[]"), "neither `roles`"),
        (("    tenant: default\n", ""), "one of the two"),
        (("https://login", "http://login"), "allow_http"),
        (("https://login", "ftp://login"), "must be an https://"),
        (("https://login", "https://a:b@login"), "must be an https://"),
        (("    roles:", "    algorithms: [HS256]\n    roles:"), "algorithms"),
        (("    roles:", "    algorithms: [none]\n    roles:"), "algorithms"),
        (("    roles:", "    rolls: 1\n    roles:"), "rolls"),
    ],
)
def test_a_list_of_issuers_that_would_let_too_much_in_is_refused_with_its_place(tmp_path, change, match):
    path = tmp_path / "logins.yaml"
    path.write_text(GOOD.replace(*change))
    with pytest.raises(LoginsInvalid, match=match) as wrong:
        read_issuers(path)
    assert wrong.value.line > 1


def test_the_list_is_read_and_none_is_nobody(tmp_path):
    path = tmp_path / "logins.yaml"
    assert read_issuers(path, optional=True) == ()
    with pytest.raises(LoginsInvalid, match="cannot be read"):
        read_issuers(path)
    path.write_text(GOOD)
    (found,) = read_issuers(path)
    assert (found.issuer, found.skew_s, found.algorithms) == ("https://login.example.com", 60, ("RS256", "ES256"))
    path.write_text(GOOD + GOOD.split("issuers:\n")[1])
    with pytest.raises(LoginsInvalid, match="twice"):
        read_issuers(path)
