from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading

import pytest
from pydantic import ValidationError

from codesdk.settings import DataDirUnusable, Settings, runfile


@pytest.fixture
def settings(tmp_path):
    return Settings(data_dir=tmp_path / "data")


def test_everything_lies_in_the_data_directory_unless_said_otherwise(settings):
    assert settings.resolved_database_url() == f"sqlite:///{settings.data_dir}/codesdk.db"
    assert settings.resolved_redis_url() == f"unix://{settings.data_dir}/redis.sock"
    given = Settings(data_dir=settings.data_dir, database_url="postgresql://x", redis_url="redis://y")
    assert (given.resolved_database_url(), given.resolved_redis_url()) == ("postgresql://x", "redis://y")


def test_variables_set_what_they_name(monkeypatch, tmp_path):
    monkeypatch.setenv("CODESDK_PORT", "1234")
    monkeypatch.setenv("CODESDK_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CODESDK_OF_SOMEBODY_ELSE", "x")
    settings = Settings()
    assert (settings.port, settings.data_dir, settings.host) == (1234, tmp_path, "127.0.0.1")


def test_pools_of_further_profiles_are_written_as_pairs(monkeypatch):
    monkeypatch.setenv("CODESDK_WARM_POOLS", "build=2, node=1")
    settings = Settings()
    assert settings.pool_sizes("default") == {"default": 1, "build": 2, "node": 1}
    assert settings.model_copy(update={"warm_pools": {"default": 3}}).pool_sizes("default") == {"default": 3}


@pytest.mark.parametrize(
    "given", ["build", "build=", "build=-1", "build=x", {"build": -1}, "a=32,b=32", "{", '{"a": "x"}']
)
def test_a_pool_size_that_makes_no_sense_or_is_too_much_is_refused(given):
    with pytest.raises(ValidationError):
        Settings(warm_pools=given)


def test_files_of_secrets_set_what_they_name_and_the_environment_wins(monkeypatch, tmp_path):
    (tmp_path / "codesdk_database_url").write_text("postgresql+psycopg://app:word@db/codesdk\n")
    (tmp_path / "codesdk_redis_url").write_text("redis://of-the-file")
    monkeypatch.setenv("CODESDK_CREDENTIALS_DIR", str(tmp_path))
    monkeypatch.setenv("CODESDK_REDIS_URL", "redis://of-the-environment")
    settings = Settings()
    assert settings.database_url == "postgresql+psycopg://app:word@db/codesdk"
    assert settings.redis_url == "redis://of-the-environment"


@pytest.mark.parametrize(
    "given", [{"port": 70000}, {"port": -1}, {"poll_s": 0}, {"worker_threads": 0}, {"session_ttl_s": -1}, {"wait_s": 0}]
)
def test_what_makes_no_sense_is_refused(given):
    with pytest.raises(ValidationError):
        Settings(**given)


def test_the_shipped_folders_are_there():
    settings = Settings()
    assert (settings.registry_dir / "workspace.read.yaml").is_file()
    assert (settings.policies_dir / "policy.yaml").is_file()
    assert settings.images_dir.is_dir()


def test_the_data_directory_is_made_private(settings):
    settings.prepare_data_dir()
    settings.prepare_data_dir()
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    assert list(settings.data_dir.iterdir()) == []


def test_a_data_directory_that_cannot_be_made_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirUnusable, match="--data-dir"):
        Settings(data_dir=tmp_path / "file" / "data").prepare_data_dir()


def test_processes_that_start_together_are_one_instance(settings):
    settings.prepare_data_dir()
    found = []
    threads = [threading.Thread(target=lambda: found.append(settings.instance_id())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 20
    assert len(set(found)) == 1
    assert [path.name for path in settings.data_dir.iterdir()] == ["instance"]


def test_what_a_living_process_said_is_read(tmp_path):
    path = runfile.write(tmp_path, "api", {"pid": os.getpid(), "port": 1})
    assert runfile.read(tmp_path, "api") == {"pid": os.getpid(), "port": 1}
    assert [file.name for file in path.parent.iterdir()] == ["api.json"]


def test_what_a_dead_process_said_does_not_count(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(30)
    runfile.write(tmp_path, "api", {"pid": dead.pid})
    assert runfile.read(tmp_path, "api") is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"pid": "x"}', '{"pid": null}', "null"])
def test_what_nobody_said_is_nothing(tmp_path, content):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "api.json").write_text(content)
    assert runfile.read(tmp_path, "api") is None
    assert runfile.read(tmp_path, "worker") is None


def test_the_api_goes_by_its_public_name_and_those_that_are_added(monkeypatch):
    monkeypatch.setenv("CODESDK_PUBLIC_URL", "https://CodeSDK.example.com:8443/sandbox/")
    monkeypatch.setenv("CODESDK_ALLOWED_HOSTS", "api, Build.example.com,codesdk.example.com,[::2]")
    settings = Settings()
    assert settings.public_url == "https://CodeSDK.example.com:8443/sandbox"
    assert settings.names() == ("codesdk.example.com", "api", "build.example.com", "[::2]")


def test_without_them_it_goes_by_no_other_name():
    assert Settings().names() == ()
    assert Settings(public_url="http://[2001:db8::1]/").names() == ("[2001:db8::1]",)


@pytest.mark.parametrize(
    "url",
    ["codesdk.example.com", "ftp://x", "https://", "https://u:p@x", "https://x?y=1", "https://x#y", "https://x:99999/"],
)
def test_what_is_no_public_address_is_refused(url):
    with pytest.raises(ValidationError):
        Settings(public_url=url)


@pytest.mark.parametrize("names", ["*", "*.example.com", "https://x", "x:80", "a b", "x/y", "-x", "x\ny"])
def test_what_is_no_name_is_refused(names):
    with pytest.raises(ValidationError):
        Settings(allowed_hosts=names)


def test_networks_are_written_with_commas_and_survive_being_handed_on(monkeypatch):
    monkeypatch.setenv("CODESDK_WEBHOOK_NETWORKS", "10.20.0.0/16, fd12::/64")
    first = Settings()
    assert [str(network) for network in first.webhook_networks] == ["10.20.0.0/16", "fd12::/64"]
    for handed in (first, first.model_copy(update={"webhook_networks": ()})):
        monkeypatch.setenv("CODESDK_WEBHOOK_NETWORKS", str(handed.webhook_networks))
        assert Settings().webhook_networks == handed.webhook_networks


@pytest.mark.parametrize(
    "wrong",
    [
        {"webhook_networks": "10.20.0.1/16"},
        {"webhook_networks": "everywhere"},
        {"smtp_url": "https://mail.example", "mail_from": "a@example.com"},
        {"smtp_url": "smtps://mail.example"},
        {"mail_from": "a@example.com"},
        {"sealing_key": "short"},
    ],
)
def test_what_cannot_send_is_refused_at_the_start(wrong):
    with pytest.raises(ValidationError):
        Settings(**wrong)


def test_the_sealing_key_is_made_once_and_private(settings):
    settings.prepare_data_dir()
    key = settings.resolved_sealing_key()
    assert key == settings.resolved_sealing_key()
    assert len(key) >= 32
    assert (settings.data_dir / "sealing.key").stat().st_mode & 0o077 == 0
    assert Settings(sealing_key="k" * 40).resolved_sealing_key() == b"k" * 40
