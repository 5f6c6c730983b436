"""docs/how-to/write-a-policy.md, followed literally."""

from __future__ import annotations

import re
import shutil

import pytest

from codesdk.cli.policy import policy_app
from stage import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "write-a-policy.md").read_text()
TABLES, RULE = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def run(capsys):
    def invoke(*words):
        code = policy_app([str(word) for word in words], standalone_mode=False)
        return code, capsys.readouterr().out

    return invoke


def test_the_how_to_leads_from_nothing_to_a_tested_rule(run, tmp_path):
    mine = tmp_path / "my-policy"
    shutil.copytree(REPOSITORY / "policies" / "demo", mine)
    code, out = run("test", mine)
    assert (code, out.strip() in PAGE) == (0, True), f"the page says another number than: {out}"
    _, said = run("explain", "--policies", mine, "-c", "make test")
    assert "\n".join(said.splitlines()[:2]) in PAGE

    tests = mine / "tests" / "demo.yaml"
    tests.write_text(tests.read_text().replace("tables:\n", f"tables:\n{TABLES}", 1))
    code, out = run("test", mine)
    assert (code, out.count("expected allow")) == (1, 3)

    policy = mine / "policy.yaml"
    policy.write_text(policy.read_text().replace("rules:\n", f"rules:\n{RULE}", 1))
    assert "commands: [make, " in tests.read_text()
    code, out = run("test", mine)
    assert (code, out.count(": error: ")) == (1, 1)  # the line that the page then says to mend
    tests.write_text(re.sub(r"commands: \[make, (?!make)", "commands: [", tests.read_text()))
    assert run("lint", mine)[0] == 0
    code, out = run("test", mine, "--mutants")
    assert (code, "(100%)" in out) == (0, True), out

    calls = tmp_path / "calls.jsonl"
    (line,) = re.findall(r"one call a line as `(\{.*?\}\})`", PAGE.replace("\n", " "))
    calls.write_text(line + "\n")
    code, out = run("diff", REPOSITORY / "policies" / "demo", mine, "--calls", calls)
    assert (code, "ask→allow" in out) == (1, True)
    assert run("diff", REPOSITORY / "policies" / "demo", mine, "--calls", calls, "--accept-allows")[0] == 0
