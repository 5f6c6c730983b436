"""`codesdk sandbox clear` before an installation is deleted."""

from __future__ import annotations

import json

import pytest

from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.isolation import spec as specs
from codesdk.settings import Settings
from codesdk.settings.process_lock import try_lock

pytestmark = pytest.mark.engine


@pytest.fixture
def settings(tmp_path):
    settings = Settings(data_dir=tmp_path / "data")
    settings.prepare_data_dir()
    return settings


@pytest.fixture
def volume(engine, settings):
    """A workspace that a worker of this installation left."""
    client = Engine(engine.host)
    instance = settings.instance_id()
    name = specs.container_name(instance, "sbx_left")
    labels = {specs.LABEL_INSTANCE: instance, specs.LABEL_OWNER: "sbx_left"}
    client.api.create_volume(name, labels=labels)
    yield lambda: client.api.volumes(filters={"name": name})["Volumes"] or []
    for left in client.api.volumes(filters={"name": name})["Volumes"] or []:
        client.api.remove_volume(left["Name"], force=True)
    client.close()


def test_what_a_worker_left_on_the_engine_is_removed(codesdk, volume):
    assert volume()
    ended = codesdk("sandbox", "clear", "--json")
    assert ended.code == 0, ended.line
    assert json.loads(ended.out) == {"containers": [], "volumes": ["sbx_left"]}
    assert volume() == []


def test_sandboxes_that_a_worker_serves_are_left_alone(codesdk, volume, settings):
    with try_lock(settings.data_dir / "worker.lock"):
        ended = codesdk("sandbox", "clear")
    assert ended.code == 69
    assert "Stop it first" in ended.line
    assert volume()
