"""Patches as models write them, as an agent sends them: through MCP, policy, the worker and a real sandbox."""

from __future__ import annotations

import base64
import json

import pytest
import yaml

from stage import REPOSITORY

pytestmark = [pytest.mark.engine, pytest.mark.redis, pytest.mark.timeout(300)]
CORPUS = yaml.safe_load((REPOSITORY / "tests/fixtures/patches/model-written.yaml").read_text())
EVERY = 3
SET = """
import base64, json, os, pathlib, shutil, sys
for entry in os.scandir("."): shutil.rmtree(entry.path) if entry.is_dir() else os.unlink(entry.path)
for path, text in json.loads(base64.b64decode(sys.argv[1])).items():
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(path).write_bytes(text.encode())
"""
SHOW = """
import json, pathlib
print(json.dumps({str(p): p.read_bytes().decode() for p in pathlib.Path(".").rglob("*") if p.is_file()}))
"""


def python(agent, program, *words):
    answer = agent.use("workspace_exec", {"argv": ["python3", "-c", program, *words]})
    assert answer.details["status"] == "completed", answer
    return answer.output


def test_patches_of_the_corpus_do_as_an_agents_calls_what_they_do_alone(installation):
    agent = installation.open_session()
    for case in CORPUS[::EVERY]:
        python(agent, SET, base64.b64encode(json.dumps(case["files"]).encode()).decode())
        answer = agent.use("patch_apply", {"patch": case["patch"]})
        expected = case["files"] | case.get("after", {})
        if "refused" in case:
            assert answer.code == case.get("code", "PATCH_REJECTED"), (case["name"], answer)
            assert case["refused"] in answer.text, case["name"]
        else:
            assert answer.details["status"] == "completed", (case["name"], answer)
        found = json.loads(python(agent, SHOW))
        assert found == {path: text for path, text in expected.items() if text is not None}, case["name"]


def test_an_agent_that_edits_is_told_where_to_look(installation):
    agent = installation.open_session()
    made = agent.use("workspace_edit", {"path": "a.py", "old_text": "", "new_text": "x = 1\ny = 1\n"})
    assert made.details["status"] == "completed", made
    twice = agent.use("workspace_edit", {"path": "a.py", "old_text": " = 1", "new_text": " = 2"})
    assert (twice.code, "at lines [1, 2]" in twice.text) == ("EDIT_REJECTED", True)
    wrong = agent.use("workspace_edit", {"path": "a.py", "old_text": "y =  1", "new_text": "y = 2"})
    assert (wrong.code, "line 2" in wrong.text) == ("EDIT_REJECTED", True)
    other = agent.use("workspace_edit", {"file_path": "a.py", "old_string": "y = 1", "new_string": "y = 2"})
    assert (other.code, "instead of" in other.text) == ("INVALID_INPUT", True)
    right = agent.use("workspace_edit", {"path": "a.py", "old_text": "y = 1", "new_text": "y = 2"})
    assert right.text == "Edited a.py at line 2."
    assert agent.call("cat a.py").output == "x = 1\ny = 2\n"
