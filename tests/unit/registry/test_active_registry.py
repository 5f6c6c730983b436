"""Tenants' manifests on top of the shared ones, and files that change at run time."""

from __future__ import annotations

import shutil

import pytest

from codesdk.registry import ActiveRegistry, ManifestInvalid, UnknownTool
from stage import wait_for

MANIFEST = """name: NAME
version: 1.0.0
title: A tool
description: Does a thing.
classification: read-only
runs: {argv: [wc, {arg: /path}]}
input_schema:
  type: object
  additionalProperties: false
  properties:
    path: {type: string}
"""


def manifest(name):
    return MANIFEST.replace("NAME", name)


@pytest.fixture
def place(tmp_path):
    """`shared` has tools, `tenants` a directory for `ten_a`."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.yaml").write_text(manifest("base.tool"))
    (tmp_path / "tenants" / "ten_a").mkdir(parents=True)
    (tmp_path / "tenants" / "ten_a" / "own.yaml").write_text(manifest("acme.count"))
    return tmp_path


@pytest.fixture
def active(place):
    return ActiveRegistry(place / "shared", tenants=place / "tenants")


def own(place, text, tenant="ten_a", name="own.yaml"):
    (place / "tenants" / tenant).mkdir(exist_ok=True)
    (place / "tenants" / tenant / name).write_text(text)


def names(active, tenant):
    return [tool.name for tool in active.of(tenant).tools()]


def test_a_tenants_tools_are_its_own(active):
    assert names(active, "ten_a") == ["acme.count", "base.tool"]
    assert names(active, "ten_b") == ["base.tool"]
    with pytest.raises(UnknownTool) as unknown:
        active.of("ten_b").resolve("acme.cuont")
    assert unknown.value.suggestion is None


@pytest.mark.parametrize(
    ("text", "words", "line"),
    [
        (manifest("base.tool"), "would shadow `base.tool`", 1),
        (manifest("base_tool.x").replace("base_tool.x", "base.other"), "begin with `base.`", 1),
        (manifest("workspace.count"), "begin with `workspace.`", 1),
        (manifest("http.fetch"), "begin with `http.`", 1),
        (
            manifest("acme.run").replace("{argv: [wc, {arg: /path}]}", "{builtin: workspace.exec}"),
            "must be a command",
            6,
        ),
    ],
)
def test_a_tenant_takes_no_name_that_means_something_already(place, text, words, line):
    own(place, text)
    with pytest.raises(ManifestInvalid, match=words) as refused:
        ActiveRegistry(place / "shared", tenants=place / "tenants")
    assert (refused.value.line, refused.value.code) == (line, "MANIFEST_INVALID")


def test_wire_names_of_tenant_and_installation_do_not_meet(place):
    (place / "shared" / "two.yaml").write_text(manifest("one.two.three"))
    own(place, manifest("one.two_three"))
    with pytest.raises(ManifestInvalid, match=r"would shadow `one\.two\.three`"):
        ActiveRegistry(place / "shared", tenants=place / "tenants")


def test_a_directory_of_tenants_that_is_not_there_stops_the_start(place):
    with pytest.raises(ManifestInvalid, match="cannot be read"):
        ActiveRegistry(place / "shared", tenants=place / "none")


def test_changed_files_come_into_force_whole_or_not_at_all(active, place):
    held = active.of("ten_b")
    (place / "shared" / "more.yaml").write_text(manifest("more.tool"))
    (place / "shared" / "broken.yaml").write_text(manifest("broken.tool").replace("wc", "[wc"))
    active.refresh()
    assert names(active, "ten_b") == ["base.tool"]
    assert list(active.problems()) == ["shared"]
    (place / "shared" / "broken.yaml").unlink()
    active.refresh()
    assert names(active, "ten_b") == ["base.tool", "more.tool"]
    assert names(active, "ten_a") == ["acme.count", "base.tool", "more.tool"]
    assert active.problems() == {}
    assert [tool.name for tool in held.tools()] == ["base.tool"]


def test_shared_files_that_vanish_leave_the_last_good_tools(active, place):
    shutil.rmtree(place / "shared")
    active.refresh()
    assert names(active, "ten_b") == ["base.tool"]
    assert "no tool manifest" in str(active.problems()["shared"])


def test_a_tenants_broken_file_leaves_its_last_good_tools_and_everybody_elses(active, place):
    own(place, "name: [")
    own(place, manifest("other.count"), tenant="ten_b")
    active.refresh()
    assert names(active, "ten_a") == ["acme.count", "base.tool"]
    assert names(active, "ten_b") == ["base.tool", "other.count"]
    assert list(active.problems()) == ["ten_a"]
    own(place, manifest("acme.other"))
    active.refresh()
    assert (names(active, "ten_a"), active.problems()) == (["acme.other", "base.tool"], {})


def test_a_new_shared_tool_wins_over_a_tenants_of_the_same_name(active, place):
    (place / "shared" / "new.yaml").write_text(manifest("acme.count").replace("wc", "cat"))
    active.refresh()
    assert active.of("ten_a").resolve("acme.count").argv({}) == ("cat",)
    assert "would shadow" in str(active.problems()["ten_a"])


def test_a_tenant_whose_directory_is_removed_has_the_shared_tools(active, place):
    shutil.rmtree(place / "tenants" / "ten_a")
    active.refresh()
    assert names(active, "ten_a") == ["base.tool"]


def test_a_vanished_directory_of_all_tenants_changes_nothing(active, place):
    (place / "tenants").rename(place / "away")
    active.refresh()
    assert names(active, "ten_a") == ["acme.count", "base.tool"]
    assert list(active.problems()) == ["tenants"]
    (place / "away").rename(place / "tenants")
    active.refresh()
    assert active.problems() == {}


def test_files_that_say_the_same_leave_the_tools_as_they_are(active, place):
    before = active.of("ten_a")
    (place / "shared" / "base.yaml").touch()
    active.refresh()
    assert active.of("ten_a") is before


def test_the_watch_takes_up_a_change_by_itself(active, place):
    active.watch()
    try:
        own(place, manifest("acme.other"))
        wait_for(lambda: "acme.other" in names(active, "ten_a"), "the change", 60)
    finally:
        active.close()


def test_the_names_that_policy_knows_are_those_of_now(active, place):
    known = active.known_tools()
    (place / "shared" / "more.yaml").write_text(manifest("more.tool"))
    active.refresh()
    assert list(known) == ["acme.count", "base.tool", "more.tool"]
    own, other = known.of_tenant("ten_a"), known.of_tenant("ten_other")
    assert (list(own), list(other)) == (["acme.count", "base.tool", "more.tool"], ["base.tool", "more.tool"])
