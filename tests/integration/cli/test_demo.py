"""A complete run of `codesdk demo`."""

from __future__ import annotations

import json
import subprocess

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.redis, pytest.mark.timeout(300)]


def containers() -> set[str]:
    listed = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", "label=codesdk.owner"],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return set(listed.stdout.split())


def test_the_demo_governs_runs_records_and_leaves_nothing(codesdk, sandbox_image, tmp_path):
    data = tmp_path / "data"

    ended = codesdk("demo", "--json", "--data-dir", str(data), deadline_s=240)

    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    states = [(call["voices"][0]["result"], call["state"]) for call in told["calls"]]
    assert states[3:] == [
        ("allow", "failed"),
        ("allow", "completed"),
        ("allow", "completed"),
        ("deny", "denied"),
        ("ask", "completed"),
        ("ask", "failed"),
    ]
    assert "Network is unreachable" in ended.err
    assert not (data / "redis.sock").exists()
    assert list((data / "run").glob("*.json")) == []


def test_a_demo_that_fails_says_why_cleans_up_and_fails(codesdk, sandbox_image, tmp_path):
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "policy.yaml").write_text("version: 1\nname: nothing\ndefault: deny\nrules: []\n")
    data = tmp_path / "data"

    ended = codesdk("demo", "--json", "--data-dir", str(data), "--policies", str(rules), deadline_s=240)

    assert ended.code == 1
    error = json.loads(ended.err.splitlines()[-1])["error"]
    assert error["code"] == "DEMO_FAILED"
    assert not (data / "redis.sock").exists()
    assert list((data / "run").glob("*.json")) == []
