"""Prompts next to the manifests: loaded completely or not at all, filled in one pass."""

from __future__ import annotations

import shutil

import pytest

from codesdk.registry import ActiveRegistry, InvalidPromptArgument, ManifestInvalid, Registry, read_prompts
from stage import REPOSITORY

REVIEW = """\
version: 1
name: review
title: Review a file
arguments:
  - {name: path, required: true}
  - {name: tone, default: kind, values: [kind, strict]}
messages:
  - text: "Review {path}, be {tone}. Braces: {{path}} {{}}"
  - {role: assistant, text: "{path}?"}
"""


@pytest.fixture
def tools(tmp_path):
    root = tmp_path / "tools"
    root.mkdir()
    shutil.copy(REPOSITORY / "tool-registry" / "workspace.read.yaml", root)
    return root


def write(root, text=REVIEW, name="review.yaml"):
    (root / "prompts").mkdir(exist_ok=True)
    (root / "prompts" / name).write_text(text)
    return root


def test_blanks_are_filled_once_so_that_braces_in_a_value_stay_what_they_are(tools):
    prompt = Registry.load(write(tools)).prompts["review"]
    assert prompt.render({"path": "{tone} {{x}}"}) == [
        ("user", "Review {tone} {{x}}, be kind. Braces: {path} {}"),
        ("assistant", "{tone} {{x}}?"),
    ]
    for given in ({}, {"path": ""}, {"path": "a", "other": "b"}, {"path": "x" * 20_000}):
        with pytest.raises(InvalidPromptArgument):
            prompt.render(given)


@pytest.mark.parametrize(
    ("change", "line", "match"),
    [
        (("{path}, be", "{paths}, be"), 8, "`paths` is not an argument"),
        (("Braces: {{path}}", "Braces: {path"), 8, "double it"),
        (("name: review", "name: Re View"), 2, "name"),
        (("name: tone", "name: path"), 4, "the same name"),
        (("role: assistant", "role: system"), 9, "role"),
        (("title:", "titel:"), 3, "titel"),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_nothing_is_loaded(tools, change, line, match):
    write(tools, REVIEW.replace(*change))
    with pytest.raises(ManifestInvalid, match=match) as wrong:
        Registry.load(tools)
    assert wrong.value.line == line


def test_two_prompts_of_one_name_are_refused_also_across_a_tenants(tools, tmp_path):
    write(tools)
    write(tools, name="again.yaml")
    with pytest.raises(ManifestInvalid, match="Another prompt"):
        Registry.load(tools)
    (tools / "prompts" / "again.yaml").unlink()
    own = tmp_path / "tenants" / "ten_1"
    own.mkdir(parents=True)
    write(own)
    with pytest.raises(ManifestInvalid, match="Another prompt"):
        ActiveRegistry(tools, tenants=tmp_path / "tenants")


def test_a_tenant_has_the_shared_prompts_and_its_own_and_changes_come_into_force_whole(tools, tmp_path):
    own = tmp_path / "tenants" / "ten_1"
    own.mkdir(parents=True)
    write(tools)
    write(own, REVIEW.replace("name: review", "name: ours"))
    active = ActiveRegistry(tools, tenants=tmp_path / "tenants")
    assert (list(active.of("ten_1").prompts), list(active.of("ten_2").prompts)) == (["ours", "review"], ["review"])
    before = active.of("ten_1").hash
    write(own, REVIEW.replace("name: review", "name: changed"))
    active.refresh()
    assert list(active.of("ten_1").prompts) == ["changed", "review"]
    assert active.of("ten_1").hash != before
    write(own, "version: 1\n")
    active.refresh()
    assert list(active.of("ten_1").prompts) == ["changed", "review"]
    assert "ten_1" in active.problems()


def test_without_prompts_nothing_is_there_and_the_hash_is_that_of_the_tools(tools):
    assert read_prompts(tools) == ()
    assert Registry.load(tools).hash == Registry(Registry.load(tools).tools()).hash
