"""`codesdk tools call --local`: tries a manifest without an installation."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from integration.cli.running import CODESDK

MANIFEST = """name: word.count
version: 1.0.0
title: Count words
description: Count the words of a text file of the workspace.
classification: read-only
runs: {argv: [wc, -w, {arg: /path}]}
input_schema:
  type: object
  additionalProperties: false
  required: [path]
  properties: {path: {type: string}}
"""


@pytest.fixture
def try_locally(tmp_path):
    """Runs the command with manifests and a workspace of the test's own."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "count.yaml").write_text(MANIFEST)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a b.txt").write_text("one two three\n")

    def run(name, given, **environ):
        env = {
            **os.environ,
            "CODESDK_DATA_DIR": str(tmp_path / "data"),
            "CODESDK_REGISTRY_DIR": str(tmp_path / "tools"),
            "CODESDK_LOCAL_SANDBOX": "plain",
            **environ,
        }
        words = ("tools", "call", name, json.dumps(given), "--local", "--workspace", str(tmp_path / "project"))
        return subprocess.run(
            [*CODESDK, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return run


def test_a_tool_runs_by_its_manifest_and_leaves_nothing(try_locally, tmp_path):
    done = try_locally("word.count", {"path": "a b.txt"})
    assert (done.returncode, done.stdout) == (0, "3 a b.txt\n"), done.stderr
    assert "LOCAL SANDBOX" in done.stderr
    assert "without policy and record" in done.stderr
    assert not (tmp_path / "data" / "codesdk.db").exists()
    failed = try_locally("word.count", {"path": "none"})
    assert (failed.returncode, "none" in failed.stdout) == (1, True), failed


@pytest.mark.parametrize(
    ("name", "given", "environ", "said"),
    [
        ("word.cuont", {}, {}, "Did you mean `word.count`?"),
        ("word.count", {"pth": "a"}, {}, "`path` instead of `pth`"),
        ("word.count", {"path": "a b.txt"}, {"CODESDK_LOCAL_SANDBOX": "off"}, "error: "),
    ],
)
def test_what_cannot_be_tried_is_said_before_anything_runs(try_locally, name, given, environ, said):
    done = try_locally(name, given, **environ)
    assert said in done.stderr
    assert (done.returncode in (64, 77), done.stdout) == (True, ""), done.stderr
