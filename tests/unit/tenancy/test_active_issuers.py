"""The list of issuers at run time: changed, invalid, and missing."""

from __future__ import annotations

import pytest

from codesdk.tenancy.logins import ActiveIssuers, JwksCache, LoginRefused, LoginService, LoginsInvalid
from codesdk.tenancy.logins.issuers import Algorithm
from issuers import Mint
from stage import wait_for

TEXT = (
    "version: 1\nissuers:\n  - issuer: {issuer}\n    audience: {audience}\n    tenant: default\n    roles: [{roles}]\n"
)


@pytest.fixture(scope="module")
def mint():
    return Mint()


@pytest.fixture
def path(tmp_path, mint):
    written = tmp_path / "logins.yaml"
    written.write_text(text(mint))
    return written


def text(mint, issuer="", roles="developer"):
    return TEXT.format(issuer=issuer or mint.url, audience=mint.audience, roles=roles)


def test_a_changed_list_is_in_force_after_the_next_look(path, mint):
    active = ActiveIssuers(path, optional=True)
    path.write_text(text(mint, roles="developer, approver"))
    assert [each.roles for each in active.now()] == [("developer",)]
    active.reload()
    assert [each.roles for each in active.now()] == [("developer", "approver")]


def test_a_list_that_cannot_be_used_leaves_the_last_good_one_in_force_and_says_why_once(path, mint, caplog):
    active = ActiveIssuers(path, optional=True)
    path.write_text(text(mint, roles="operator"))
    active.reload()
    active.reload()
    assert [each.issuer for each in active.now()] == [mint.url]
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "role operator" in said
    path.write_text(text(mint, issuer="https://other.example.com"))
    active.reload()
    assert [each.issuer for each in active.now()] == ["https://other.example.com"]


def test_a_file_that_goes_ends_logins_where_it_may_be_missing_and_else_changes_nothing(path):
    may, must = ActiveIssuers(path, optional=True), ActiveIssuers(path, optional=False)
    path.unlink()
    for active in (may, must) * 2:
        active.reload()
    assert may.now() == ()
    assert len(must.now()) == 1


def test_a_file_that_an_editor_takes_away_for_a_moment_ends_nobodys_login(path, mint):
    active = ActiveIssuers(path, optional=True)
    for _ in range(3):
        path.unlink()
        active.reload()
        path.write_text(text(mint))
        active.reload()
        assert len(active.now()) == 1


def test_a_list_that_comes_later_is_taken(tmp_path, mint):
    path = tmp_path / "logins.yaml"
    active = ActiveIssuers(path, optional=True)
    assert active.now() == ()
    path.write_text(text(mint))
    active.reload()
    assert len(active.now()) == 1


def test_nothing_starts_with_a_list_that_cannot_be_used(path):
    path.write_text("version: 1\n")
    with pytest.raises(LoginsInvalid):
        ActiveIssuers(path, optional=True)


def test_it_is_looked_at_again_and_again(path, mint):
    active = ActiveIssuers(path, optional=True)
    active.watch()
    try:
        path.write_text(text(mint, roles="auditor"))
        wait_for(lambda: active.now()[0].roles == ("auditor",), "the changed list", 60)
    finally:
        active.close()


def test_the_tokens_of_an_issuer_that_was_taken_out_are_refused(stage, path, mint):
    active = ActiveIssuers(path, optional=True)
    desk = LoginService(
        active.now,
        JwksCache(mint.fetch, stage.clock.monotonic),
        database=stage.database,
        writer=stage.writer,
        quotas=stage.quotas,
        clock=stage.clock,
        ids=stage.ids,
    )
    token = mint.token(stage.clock.now().timestamp())
    assert desk.log_in(token).principal.roles == ("developer",)
    path.write_text(text(mint, issuer="https://other.example.com"))
    active.reload()
    with pytest.raises(LoginRefused, match="does not accept logins"):
        desk.log_in(token)


def test_keys_that_came_from_another_place_than_the_list_says_now_are_not_used(stage, mint):
    ring = JwksCache(mint.fetch, stage.clock.monotonic)
    mint.asked.clear()
    assert ring.key(mint.issuer(), "one", Algorithm.RS256)
    assert ring.key(mint.issuer(), "one", Algorithm.RS256)
    asked = len(mint.asked)
    assert ring.key(mint.issuer(jwks="https://elsewhere.example.com/keys"), "one", Algorithm.RS256)
    assert mint.asked[asked:] == ["https://elsewhere.example.com/keys"]
