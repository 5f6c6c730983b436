from __future__ import annotations

import itertools
import json

import pytest

from codesdk.provision import credentials
from codesdk.provision.credentials import (
    Passwords,
    generate_passwords,
    load_or_create,
    redis_acl,
    service_files,
    write_service_files,
)


def counting():
    numbers = itertools.count(1)
    return lambda: f"word-{next(numbers)}-of-5"


PASSWORDS = generate_passwords(counting())


def test_every_role_has_a_password_of_its_own():
    assert len(set(PASSWORDS.model_dump().values())) == len(Passwords.model_fields)


def test_what_was_made_is_kept_and_handed_out_again(tmp_path):
    made = load_or_create(tmp_path, counting())
    write_service_files(tmp_path, made)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    write_service_files(tmp_path, load_or_create(tmp_path, lambda: pytest.fail("made again")))
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_start_that_was_interrupted_leaves_no_half_written_file(tmp_path, monkeypatch):
    def cut(_fd):
        raise OSError("power")

    with monkeypatch.context() as patched:
        patched.setattr(credentials.os, "fsync", cut)
        with pytest.raises(OSError, match="power"):
            load_or_create(tmp_path, counting())
    made = load_or_create(tmp_path, lambda: "again")
    assert made.owner == "again"
    assert [path.name for path in (tmp_path / "source").iterdir()] == ["passwords.json"]


def test_only_the_source_holds_all_and_only_its_user_reads_it(tmp_path):
    made = load_or_create(tmp_path, counting())
    write_service_files(tmp_path, made)
    source = tmp_path / "source" / "passwords.json"
    assert json.loads(source.read_text()) == made.model_dump()
    assert source.stat().st_mode & 0o777 == 0o400


def test_no_service_gets_a_password_that_is_not_its_own():
    texts = {}
    for name, content in service_files(PASSWORDS).items():
        texts[name.partition("/")[0]] = texts.get(name.partition("/")[0], "") + content
    holds = {place: {role for role, word in PASSWORDS if word in text} for place, text in texts.items()}
    assert holds == {
        "postgres": {"superuser", "owner", "app"},  # the server that checks them
        "redis": set(),  # hashes only
        "migrate": {"owner"},
        "api": {"app", "api"},
        "worker": {"app", "worker"},
    }


def test_nobody_reaches_redis_without_a_password():
    default, *others = redis_acl(PASSWORDS).strip().splitlines()
    assert default.split()[:3] == ["user", "default", "off"]
    assert all(" on #" in user and "nopass" not in user for user in others)
