"""A command becomes a tool without Python: created, checked, called and tested on a running installation."""

from __future__ import annotations

import json
import shutil

import pytest

from codesdk.cli.demo.agent import text_of
from integration.cli.running import until
from integration.cli.test_up import call
from stage import REPOSITORY

pytestmark = [pytest.mark.engine, pytest.mark.redis, pytest.mark.timeout(240)]


@pytest.fixture
def places(tmp_path):
    """Manifests of the installation, and a directory for those of tenants."""
    shutil.copytree(REPOSITORY / "tool-registry", tmp_path / "tools")
    (tmp_path / "tenants").mkdir()
    return {"CODESDK_REGISTRY_DIR": str(tmp_path / "tools"), "CODESDK_TENANT_TOOLS_DIR": str(tmp_path / "tenants")}


def test_a_new_command_tool_runs_in_the_sandbox_and_its_example_says_what_comes_out(
    codesdk, start_up, places, tmp_path
):
    made = codesdk(
        "tools", "new", "word.count", "--command", "wc -w {path}", "--class", "read-only",
        "--description", "Count the words of a text file.", "--to", places["CODESDK_REGISTRY_DIR"],
    )  # fmt: skip
    assert made.code == 0, made
    assert codesdk("tools", "lint", "--strict", **places).code == 0
    manifest = tmp_path / "tools" / "word.count.yaml"
    output = {"exit_code": 0, "signal": None, "outcome": "exited", "stdout": "2 example.txt\n", "stderr": ""}
    output |= {"stdout_bytes": 14, "stderr_bytes": 0, "truncated": False, "duration_ms": 1}
    more = f"    output: {json.dumps(output)}\n    varies: [duration_ms]\n"
    manifest.write_text(manifest.read_text() + more)

    up = start_up(**places)
    opened = up.ready()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "a b.txt").write_text("one two three\n")
    words = ("tools", "call", "word.count", '{"path": "a b.txt"}', "--workspace", str(tmp_path / "project"))
    called = codesdk(*words, **places)
    assert (called.code, called.out) == (0, "3 a b.txt\n"), called
    tested = codesdk("tools", "test", "word.count", **places)
    assert (tested.code, "1 of 1 examples pass" in tested.out) == (0, True), tested
    refused = codesdk("tools", "call", "word.count", '{"path": "--version"}', **places)
    assert (refused.code, "does not begin with a dash" in refused.out) == (1, True), refused
    wrong = codesdk("tools", "call", "word.count", '{"pth": "a"}', **places)
    assert (wrong.code, "`path` instead of `pth`" in wrong.out) == (1, True), wrong
    missing = codesdk("tools", "call", "word.cuont", "{}", **places)
    assert (missing.code, "There is no tool `word.cuont`. Did you mean `word.count`?" in missing.err) == (64, True), (
        missing
    )
    # Every call is on the record, in a session that was closed.
    sessions = json.loads(codesdk("sessions", "list", "--json", **places).out)["sessions"]
    ours = [session for session in sessions if session["labels"].get("opened-by") == "codesdk tools"]
    assert [session["state"] for session in ours] == ["closed"] * 4

    # A tenant's tool is taken up while everything runs, also by the worker; a wrong one leaves what was there.
    tenant = tmp_path / "tenants" / sessions[0]["tenant_id"]
    tenant.mkdir()
    (tenant / "lines.yaml").write_text(
        manifest.read_text().split("examples:")[0].replace("word.count", "acme.lines").replace('"-w"', '"-l"')
    )
    until(lambda: "2 note" in _lines(opened), 20, "the tenant's tool")
    (tenant / "broken.yaml").write_text("name: [")
    (tmp_path / "tools" / "broken.yaml").write_text("name: [")
    until(lambda: "the changed tools of" in _logs(up) and "the last valid ones stay" in _logs(up), 20, "the logs")
    assert "2 note" in _lines(opened)
    assert "broken.yaml:1" in codesdk("doctor", **places).out


def _lines(opened):
    call(opened, "workspace_write", {"path": "note", "content": "1\n2\n"})
    try:
        return text_of(call(opened, "acme_lines", {"path": "note"}))
    except Exception as error:  # noqa: BLE001 (a protocol error until the tool is there)
        return str(error)


def _logs(up):
    return "".join(path.read_text() for path in up.data_dir.rglob("*.log"))
