"""compose.yaml as the real compose program reads it: valid, and with few permissions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from codesdk.worker.lifecycle.worker import DRAIN_S, MAINTENANCE_STOP_S, SHUTDOWN_S

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(sys.executable).with_name("docker-compose")
LASTING = {"postgres", "redis", "api", "worker"}
ONCE = {"credentials", "migrate"}


def read(*files: str, **settings: str) -> dict:
    words = [word for name in files for word in ("--file", name)]
    done = subprocess.run(
        [PROGRAM, *words, "config", "--format", "json"],
        env={"PATH": os.environ["PATH"], **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def config() -> dict:
    return read("compose.yaml")


@pytest.fixture
def services(config) -> dict:
    return config["services"]


def test_it_is_valid_with_nothing_set_and_with_the_stand_ins(services):
    assert set(services) == LASTING | ONCE
    assert set(read("compose.yaml", "compose.debian.yaml")["services"]) == LASTING | ONCE


def test_every_service_begins_with_no_capability_a_read_only_root_and_no_way_to_more(services):
    for name, service in services.items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["read_only"] is True, name
        assert not service.get("privileged"), name


def test_only_the_worker_gets_more_and_only_the_worker_has_the_engines_socket(services):
    assert {name for name, service in services.items() if service.get("cap_add")} == {"worker"}
    assert {name for name, service in services.items() if service.get("device_cgroup_rules")} == {"worker"}
    mounted = {
        name: [volume["source"] for volume in service.get("volumes", ()) if volume["type"] == "bind"]
        for name, service in services.items()
    }
    policies = str(ROOT / "policies" / "default")
    assert {name: found for name, found in mounted.items() if found} == {
        "api": [policies],
        "worker": ["/var/run/docker.sock", policies],
    }


def test_no_container_starts_as_root_but_the_workers(services):
    assert [name for name, service in services.items() if service.get("user", "").startswith("0")] == ["worker"]


def test_only_the_api_listens_and_only_on_loopback(services):
    listening = {name: service["ports"] for name, service in services.items() if service.get("ports")}
    assert [port["host_ip"] for ports in listening.values() for port in ports] == ["127.0.0.1"]
    assert set(listening) == {"api"}


def test_database_and_queue_have_no_way_out(config):
    assert config["networks"]["facts"]["internal"] is True
    assert [list(config["services"][name]["networks"]) for name in ("postgres", "redis", "migrate")] == [["facts"]] * 3


def test_no_password_stands_in_the_file(services):
    given = {name for service in services.values() for name in service.get("environment", {})}
    assert {name for name in given if "PASSWORD" in name or "URL" in name} == {
        "POSTGRES_PASSWORD_FILE",
        "CODESDK_PUBLIC_URL",  # has no password: the settings refuse one
    }


def test_each_service_mounts_its_own_credentials_and_cannot_write_them(services):
    readers = {
        volume["source"]: name
        for name, service in services.items()
        for volume in service.get("volumes", ())
        if volume["source"].startswith("credentials") and name != "credentials" and volume["read_only"]
    }
    assert readers == {f"credentials-{name}": name for name in ("postgres", "redis", "migrate", "api", "worker")}
    assert "credentials" in {volume["source"] for volume in services["credentials"]["volumes"]}


def test_what_lasts_is_restarted_and_checked_and_what_runs_once_is_not(services):
    assert {name for name, service in services.items() if service.get("restart") == "unless-stopped"} == LASTING
    assert {name for name, service in services.items() if service.get("healthcheck")} == LASTING


def test_a_worker_that_is_told_to_end_has_left_before_the_engine_would_kill_it(services):
    minutes, seconds = services["worker"]["stop_grace_period"].rstrip("s").split("m")
    grace_s = 60 * int(minutes) + int(seconds)
    assert DRAIN_S + MAINTENANCE_STOP_S < SHUTDOWN_S < grace_s


def test_a_second_worker_has_an_engine_a_name_and_a_data_directory_of_its_own_and_is_else_as_narrow_as_the_first():
    found = read("compose.yaml", "compose.two-hosts.yaml", SECOND_DOCKER_SOCKET="/run/second.sock")["services"]
    assert set(found) == LASTING | ONCE | {"worker-2"}
    first, second = found["worker"], found["worker-2"]
    different = {name for name in {*first, *second} if first.get(name) != second.get(name)}
    assert different == {"environment", "volumes"}
    assert second["environment"] == {**first["environment"], "CODESDK_HOST_NAME": "second"}
    places = [{each["target"]: each["source"] for each in worker["volumes"]} for worker in (first, second)]
    assert {target for target in places[0] if places[0][target] != places[1][target]} == {
        "/var/run/docker.sock",
        "/var/lib/codesdk",
    }
    assert places[1]["/var/run/docker.sock"] == "/run/second.sock"
