"""Files with people's inputs and outputs are readable only by their owner, under any umask."""

from __future__ import annotations

import os

import pytest

from codesdk.cli.console.files import private_opener, write


@pytest.fixture(autouse=True)
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def test_a_secret_text_is_its_owners(tmp_path):
    write(tmp_path / "a" / "transcript.md", "said", secret=True)
    assert (tmp_path / "a" / "transcript.md").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "a" / "transcript.md").read_text() == "said"


def test_what_is_no_secret_has_the_usual_mode(tmp_path):
    write(tmp_path / "schema.json", "{}")
    assert (tmp_path / "schema.json").stat().st_mode & 0o777 == 0o666


def test_the_opener_makes_a_file_for_its_owner(tmp_path):
    with open(tmp_path / "export.jsonl", "x", opener=private_opener) as file:
        file.write("x")
    assert (tmp_path / "export.jsonl").stat().st_mode & 0o777 == 0o600
