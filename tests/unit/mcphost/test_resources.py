"""URIs of the resources that a session's client may read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.mcphost.session_resources.uris import (
    MAX_PART_BYTES,
    ArtifactPart,
    WorkspaceFile,
    artifact_uri,
    file_uri,
    parse_uri,
)

ART = "art_01ARZ3NDEKTSV4RRFFQ69G5FAV"


def test_an_artifact_is_read_whole_or_in_parts():
    assert parse_uri(artifact_uri(ART)) == ArtifactPart(ART, 0, MAX_PART_BYTES)
    assert parse_uri(f"{artifact_uri(ART)}?start=5&length=7") == ArtifactPart(ART, 5, 7)
    assert parse_uri(f"{artifact_uri(ART)}?length={MAX_PART_BYTES * 9}") == ArtifactPart(ART, 0, MAX_PART_BYTES)


@given(st.text(min_size=1).filter(lambda path: path.encode("utf-8", "ignore").decode() == path))
def test_any_path_comes_through_its_address_as_it_was(path):
    assert parse_uri(file_uri(path)) == WorkspaceFile({"path": path})


def test_lines_of_a_file_are_arguments_of_the_tool():
    assert parse_uri("codesdk://workspace/src/app.py?offset=3&limit=2") == WorkspaceFile(
        {"path": "src/app.py", "offset": 3, "limit": 2}
    )


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "file:///etc/passwd",
        "codesdk://workspace/",
        "codesdk://workspace",
        "codesdk://artifacts/art_1",
        "codesdk://artifacts/../workspace/a",
        f"codesdk://artifacts/{ART}?offset=1",
        f"codesdk://artifacts/{ART}?start=-1",
        f"codesdk://artifacts/{ART}?start=1&start",
        f"codesdk://artifacts/{ART}#part",
        "codesdk://workspace/a?offset=9999999999999999999",
        "codesdk://workspace/%ff",
        "codesdk://[/a",
        "codesdk://elsewhere/a",
    ],
)
def test_what_is_none_of_ours_is_nothing(uri):
    assert parse_uri(uri) is None


@given(st.text())
def test_no_text_is_too_odd_to_parse(uri):
    parse_uri(uri)
    parse_uri(f"codesdk://workspace/{uri}")
