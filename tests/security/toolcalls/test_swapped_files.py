"""A script or link that is swapped while its approval is pending runs nothing."""

from __future__ import annotations

import pytest

from codesdk.approvals import Verdict
from codesdk.sandbox.port import FileWrite
from codesdk.toolcalls.records.call_record import ClaimedCall
from codesdk.worker.deferred_approvals.file_fingerprints import FileFingerprints
from sandbox_fixtures import make_spec, open_sandbox, sandboxes
from sandboxes import run
from stage import bundle

__all__ = ["make_spec", "open_sandbox", "sandboxes"]
pytestmark = pytest.mark.engine

ASKING = """\
version: 1
default: deny
enable: [workspace.exec]
rules:
  - {id: all, effect: ask, tool: [workspace.exec, workspace.write, workspace.edit, patch.apply]}
"""


class Approver:
    """Asks about a call in a real sandbox, lets things happen, approves and runs it."""

    def __init__(self, stage, box):
        self._stage = stage
        self.box = box
        self._fingerprints = FileFingerprints(
            host=stage.host, sandbox_registry=self, deferred_approvals=stage.deferred, database=stage.database
        )

    def ready(self, _session):
        return self.box

    def __call__(self, name, given, meanwhile=lambda: None):
        stage = self._stage
        stage.pipeline.submit(name, given, stage.subject)
        self._fingerprints.look()
        (asked,) = stage.pending()
        meanwhile()
        by = stage.principal
        stage.pipeline.vote(by.tenant_id, asked.id, Verdict.APPROVE, digest=asked.digest, by=by.id, comment=None)
        claimed = stage.claims(stage.bundle).take()
        assert isinstance(claimed, ClaimedCall)
        return stage.execution().run(claimed, lambda: self.box)


@pytest.fixture
def approved(stage, tmp_path, open_sandbox):
    stage.bundle = bundle(tmp_path / "asking", ASKING, stage.registry)
    stage.pipeline = stage.pipeline_with(stage.bundle)
    stage.pipeline.looks = False
    made = Approver(stage, open_sandbox())
    made.box.files.write(
        (FileWrite(path="run.sh", content=b"echo good > ran\n"), FileWrite(path="sub/x", content=b"1"))
    )
    return made


def test_what_nobody_touched_runs(approved):
    assert not approved("workspace.exec", {"command": "bash run.sh"}).is_error
    assert approved.box.files.read("ran").data == b"good\n"


@pytest.mark.parametrize(
    "swap",
    [
        "echo 'echo evil > ran' > run.sh",
        "echo 'echo evil > ran' > e && mv e run.sh",
        "echo 'echo evil > ran' > /tmp/e && ln -sf /tmp/e run.sh",
        "cp run.sh copy && ln -sf copy run.sh",
        "rm run.sh && mkfifo run.sh",
        "rm run.sh",
    ],
)
@pytest.mark.parametrize("line", ["bash run.sh", "cd . && sh run.sh", "true < run.sh; env bash run.sh"])
def test_a_script_that_was_swapped_runs_nothing_and_the_agent_reads_which(approved, swap, line):
    result = approved("workspace.exec", {"command": line}, lambda: run(approved.box, "sh", "-c", swap))
    assert (result.is_error, result.code) == (True, "FILES_CHANGED")
    assert "run.sh" in result.text
    assert approved.box.files.stat("ran").error == "NOT_FOUND"


def test_a_directory_that_was_put_in_the_way_runs_nothing(approved):
    swap = "mkdir later && mv run.sh later && mkdir other && echo 'echo evil > ran' > other/run.sh && mv other now"
    result = approved("workspace.exec", {"command": "cd now; bash run.sh"}, lambda: run(approved.box, "sh", "-c", swap))
    assert result.code == "FILES_CHANGED"
    assert approved.box.files.stat("ran").error == "NOT_FOUND"


def test_a_patch_and_a_write_change_only_what_was_shown(approved):
    diff = "--- a/sub/x\n+++ b/sub/x\n@@ -1 +1 @@\n-1\n\\ No newline at end of file\n+2\n\\ No newline at end of file\n"
    section = "*** Begin Patch\n*** Update File: sub/x\n@@\n-1\n+2\n*** End Patch\n"
    for name, given in (
        ("patch.apply", {"patch": diff}),
        ("patch.apply", {"patch": section}),
        ("workspace.write", {"path": "sub/x", "content": "2"}),
        ("workspace.edit", {"path": "sub/x", "old_text": "1", "new_text": "2"}),
    ):
        approved.box.files.write((FileWrite(path="sub/x", content=b"1"),))
        swap = "mkdir -p other && printf 3 > other/x && rm -rf sub && ln -s other sub"
        result = approved(name, given, lambda swap=swap: run(approved.box, "sh", "-c", swap))
        assert result.code == "FILES_CHANGED", result
        assert approved.box.files.read("other/x").data == b"3"
        run(approved.box, "sh", "-c", "rm sub other -r; mkdir sub")
        approved.box.files.write((FileWrite(path="sub/x", content=b"1"),))
        assert not approved(name, given).is_error
        assert approved.box.files.read("sub/x").data == b"2"
