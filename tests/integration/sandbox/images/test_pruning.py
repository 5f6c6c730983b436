"""Older builds are removed only if nothing uses them, and other images never."""

from __future__ import annotations

import io
import uuid

import pytest

from codesdk.sandbox.images import builder
from codesdk.sandbox.images.pruning import old_builds, remove_build

pytestmark = pytest.mark.engine


@pytest.fixture
def built(tmp_path, sandboxes, sandbox_image):
    """Three builds of one folder, oldest first; what is left of them at the end is removed."""
    engine, name = sandboxes._engine, f"t{uuid.uuid4().hex[:12]}"
    (tmp_path / name).mkdir()
    made = []
    for number in range(3):
        (tmp_path / name / "Dockerfile").write_text(f"ARG BASE_IMAGE\nFROM ${{BASE_IMAGE}}\nENV BUILD={number}\n")
        made.append(builder.ensure_image(engine, name, base=sandbox_image, images=tmp_path))
    yield made
    for found in engine.api.images(name=f"{builder.PREFIX}{name}"):
        engine.api.remove_image(found["Id"], force=True)


def ours(sandboxes, built, keep=()):
    """The builds of this test among those that can go: the engine is everybody's."""
    return [build for build in old_builds(sandboxes._engine, keep) if build.id in built]


def is_there(sandboxes, image) -> bool:
    return builder.describe(sandboxes._engine, image) is not None


def test_builds_that_nothing_uses_can_go_and_the_one_in_use_stays(sandboxes, built):
    found = ours(sandboxes, built, keep=[built[2]])
    assert {build.id for build in found} == set(built[:2])
    assert [remove_build(sandboxes._engine, build) for build in found] == ["", ""]
    assert [is_there(sandboxes, image) for image in built] == [False, False, True]


def test_a_build_that_a_container_was_made_from_stays_also_if_it_is_made_in_between(sandboxes, built):
    engine = sandboxes._engine
    found = ours(sandboxes, built)
    container = engine.api.create_container(built[0], command=["-"], network_disabled=True)
    try:
        assert built[0] not in {build.id for build in ours(sandboxes, built)}
        (build,) = [build for build in found if build.id == built[0]]
        assert "in use" in remove_build(engine, build) or is_there(sandboxes, built[0])
        assert is_there(sandboxes, built[0])
    finally:
        engine.api.remove_container(container["Id"], force=True)


def test_what_others_made_of_a_build_of_ours_and_the_build_below_it_stay(sandboxes, built):
    engine = sandboxes._engine
    child = io.BytesIO(f"FROM {built[0]}\nENV CHILD=1\n".encode())
    tag = f"neighbour-{uuid.uuid4().hex[:12]}:latest"
    heir, _ = engine.client.images.build(fileobj=child, tag=tag, rm=True, forcerm=True)
    try:
        can_go = {build.id for build in old_builds(engine, ())}
        assert heir.id not in can_go
        assert built[0] not in can_go
        assert built[1] in can_go
    finally:
        engine.api.remove_image(heir.id, force=True)


def test_a_build_to_which_somebody_gave_a_name_of_their_own_stays(sandboxes, built):
    engine, tag = sandboxes._engine, f"neighbour-{uuid.uuid4().hex[:12]}"
    engine.api.tag(built[0], tag, "mine")
    try:
        assert {build.id for build in ours(sandboxes, built)} == set(built[1:])
    finally:
        engine.api.remove_image(f"{tag}:mine")
