from __future__ import annotations

import pytest

from codesdk.tenancy.credentials import KEY_PREFIX, TOKEN_PREFIX, hash_secret, mint_secret
from codesdk.tenancy.principal import Role, Unauthenticated


def test_a_key_names_its_principal(stage):
    assert stage.directory.principal(stage.api_key) == stage.principal
    assert stage.principal.roles == (Role.DEVELOPER, Role.APPROVER)


@pytest.mark.parametrize("key", ["", "x", KEY_PREFIX, "csdk_key_" + "A" * 43, "sha256:" + "0" * 64])
def test_no_other_key_names_anybody(stage, key):
    with pytest.raises(Unauthenticated):
        stage.directory.principal(key)


def test_what_the_database_keeps_of_a_secret_opens_nothing(stage):
    with pytest.raises(Unauthenticated):
        stage.directory.principal(hash_secret(stage.api_key))
    with pytest.raises(Unauthenticated):
        stage.directory.subject(hash_secret(stage.token))


def test_a_key_is_no_token_and_a_token_no_key(stage):
    with pytest.raises(Unauthenticated):
        stage.directory.subject(stage.api_key)
    with pytest.raises(Unauthenticated):
        stage.directory.principal(stage.token)


def test_a_revoked_key_names_nobody(stage):
    stage.sql("UPDATE api_keys SET revoked_at = 1")
    with pytest.raises(Unauthenticated):
        stage.directory.principal(stage.api_key)


def test_a_token_opens_its_session(stage):
    subject = stage.directory.subject(stage.token)
    assert (subject.session_id, subject.principal_id) == (stage.session.id, stage.principal.id)
    assert subject.roles == ("developer", "approver")


def test_a_tokens_expiry_is_judged_by_the_databases_clock(stage):
    stage.clock.advance(10**9)
    stage.directory.subject(stage.token)
    stage.sql(f"UPDATE session_tokens SET expires_at = {stage.now} - 0.001")
    with pytest.raises(Unauthenticated):
        stage.directory.subject(stage.token)


def test_a_token_lives_as_long_as_was_said(stage):
    ((left,),) = stage.sql(f"SELECT expires_at - {stage.now} FROM session_tokens")
    assert 3590 < left <= 3600


def test_tokens_end_with_their_session(stage):
    stage.sessions.close(stage.principal.tenant_id, stage.session.id)
    with pytest.raises(Unauthenticated):
        stage.directory.subject(stage.token)


def test_secrets_are_long_and_never_the_same():
    made = {mint_secret(prefix) for prefix in (KEY_PREFIX, TOKEN_PREFIX) for _ in range(100)}
    assert len(made) == 200
    assert min(map(len, made)) == 9 + 43


def test_no_secret_stands_in_the_database_file(stage):
    stage.writer.close()
    content = b"".join(path.read_bytes() for path in stage.root.glob("codesdk.db*"))
    assert stage.api_key.encode() not in content
    assert stage.token.encode() not in content


def test_a_tenant_is_made_once(stage):
    first, _ = stage.enroll("team", "a")
    second, _ = stage.enroll("team", "b")
    assert first.tenant_id == second.tenant_id != stage.principal.tenant_id
