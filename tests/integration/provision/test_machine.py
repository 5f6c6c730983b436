"""The machine's own engine and the base image on it."""

from __future__ import annotations

import json

import pytest

from codesdk.provision.checks import doctor
from codesdk.provision.checks.check import Status
from codesdk.provision.engines import endpoint
from codesdk.provision.images import base_image as base_images
from codesdk.provision.images import sandbox_images
from codesdk.provision.images.base_image import DockerCommand
from codesdk.settings import Settings


def test_the_engine_is_reachable_at_its_address(engine):
    assert endpoint.ping(engine.host).answer is endpoint.EndpointState.ENGINE


def test_the_base_image_is_found_again_and_not_made_again(engine, base_image):
    said = []
    assert base_images.ensure(engine, said.append) == base_image
    assert said == []


def test_an_image_built_on_the_base_is_not_taken_for_it(engine, base_image, sandbox_image):
    docker = DockerCommand(engine)
    ids = docker("image", "inspect", "--format", "{{.Id}}", base_images.ensure(engine, pytest.fail), sandbox_image)
    assert len(set(ids.stdout.split())) == 2


def test_the_sandbox_image_is_found_again_and_not_built_again(engine, sandbox_image):
    assert sandbox_images.ensure_image_built(engine, pytest.fail) == sandbox_image


def test_the_base_image_has_a_whole_python_and_no_name_of_this_machine(engine, base_image):
    script = "import json, sys, os; print(json.dumps([sys.version_info[:2] >= (3, 11), os.path.exists('/etc/hosts')]))"
    docker = DockerCommand(engine)
    done = docker("run", "--rm", "--init", "--network=none", base_image, "python3", "-c", script, deadline_s=60)
    assert json.loads(done.stdout)[0] is True, done.stderr


def test_doctor_finds_an_engine_that_can_hold_sandboxes(engine, tmp_path):
    found = {
        check.name: check.status for check in doctor.run_checks(Settings(data_dir=tmp_path, docker_host=engine.host))
    }
    assert found["engine"] is Status.OK
    assert found["seccomp"] is Status.OK
    assert found["cgroups"] is not Status.FAIL
