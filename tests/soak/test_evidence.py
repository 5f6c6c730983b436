"""The evidence that a soak prints about a call that did not end."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # tests/ is no package

import evidence


class FrozenEngine:
    """An engine with one container, which is frozen."""

    @property
    def api(self):
        return self

    def containers(self, **_asked):
        return [{"Id": "c" * 64, "State": "paused", "Status": "Up 3 minutes (Paused)"}]


def test_a_call_that_did_not_end_is_shown_with_all_that_is_known_of_it(stage, tmp_path):
    call = stage.pipeline.submit("workspace.exec", {"command": "sleep 9"}, stage.subject).identity.tool_call_id
    log = tmp_path / "worker.log"
    log.write_text("".join(f"line {number}\n" for number in range(500)))
    said = evidence.of_call(stage.database, call, log, FrozenEngine())
    wanted = (call, '"state": "queued"', "sleep 9", stage.session.id, "tool.call.requested", "(Paused)", "line 499")
    assert [word for word in wanted if word not in said] == []
    assert "line 300" not in said
