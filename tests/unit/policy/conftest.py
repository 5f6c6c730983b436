"""Bundles written for one test, and queries to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from codesdk.domain.decisions import Classification, PermissionMode
from codesdk.domain.subjects import Subject
from codesdk.policy import Call, ExampleTool, decide, load_bundle

REPOSITORY = Path(__file__).parents[3]
TOOLS = tuple(sorted(path.stem for path in (REPOSITORY / "tool-registry").glob("*.yaml")))
FIXTURES = REPOSITORY / "tests" / "fixtures" / "policy"
READ = ExampleTool(name="workspace.read", classification=Classification.READ_ONLY)
WRITE = ExampleTool(name="workspace.write", classification=Classification.WRITE)
EXEC = ExampleTool(name="workspace.exec", classification=Classification.DANGEROUS, enabled=False)


def subject(mode=PermissionMode.AUTO, **kwargs):
    return Subject(tenant_id="ten_1", principal_id="prn_1", session_id="ses_1", permission_mode=mode, **kwargs)


def cases(name):
    lines = (FIXTURES / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def decide_line(bundle, line, mode=PermissionMode.AUTO):
    return decide(Call(name="workspace.exec", input={"command": line}), EXEC, subject(mode), bundle)


@pytest.fixture
def write_bundle(tmp_path):
    """Writes `policy.yaml` and loads it; the head with the version is put in front."""

    def write(text, *, head="version: 1\n"):
        (tmp_path / "policy.yaml").write_text(head + text, encoding="utf-8")
        return load_bundle(tmp_path, TOOLS)

    return write


@pytest.fixture(scope="session")
def prefixes():
    return load_bundle(FIXTURES / "prefixes", TOOLS)
