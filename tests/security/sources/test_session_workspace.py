"""A server with access to the session's workspace can read it, and can't change it by any means."""

from __future__ import annotations

import json
import uuid

import pytest

from codesdk.sandbox.isolation import spec as specs
from codesdk.sandbox.port import SandboxMissing, SharedWorkspace
from codesdk.sandbox.port.faults import SandboxGone
from codesdk.sandbox.records import store
from codesdk.sandbox.records.store import SandboxState
from codesdk.sources.faults import SourceUnavailable
from databases import SqliteDatabases
from sandboxes import run, spec
from source_stage import source_stage
from stage import staged

pytestmark = pytest.mark.engine

SEED = """
echo kept > note.txt
git init -q repo && echo x > repo/a
umask 077 && echo mine > private.txt
"""


def session_sandbox(stage, sandboxes, image):
    """The sandbox of the stage's session, as a worker makes it."""
    with stage.database.read() as connection:
        row = store.of_session(connection, stage.subject.session_id)
    wanted, ready = (SandboxState.WANTED,), SandboxState.READY
    stage.writer.run(lambda unit: store.change_state(unit.connection, row.id, wanted, ready))
    asked = spec(sandboxes._instance, image, owner=row.id)
    return sandboxes.open(asked.model_copy(update={"tool_uid": row.tool_uid}))


@pytest.fixture(scope="module")
def fx(sandboxes, sandbox_image, tmp_path_factory):
    """A session with files, and an accepted server that sees them; its profile would allow it hosts and secrets."""
    databases = SqliteDatabases(tmp_path_factory.mktemp("lent"))
    with (
        staged(tmp_path_factory.mktemp("stage"), databases.migrated()) as stage,
        source_stage(stage, sandboxes, sandbox_image, accept=False, workspace="read") as made,
    ):
        made.session = session_sandbox(stage, sandboxes, sandbox_image)
        assert run(made.session, "sh", "-ec", SEED).result.exit_code == 0
        made.accept()
        yield made
        sandboxes.destroy(made.session.owner)
    databases.close()


def files(fx):
    return json.loads(fx.call("files").text)


def test_it_reads_what_the_session_wrote_and_as_it_is_now(fx):
    assert files(fx)["note"] == "kept\n"
    run(fx.session, "sh", "-c", "echo more >> note.txt")
    found = files(fx)
    assert found["note"] == "kept\nmore\n"
    assert found["git"] == "?? a"
    # Its uid is another: what the session keeps to itself stays so.
    assert found["private"] == "EACCES"


def test_it_changes_nothing_of_it(fx):
    before = run(fx.session, "sh", "-c", "ls -laR --time-style=full-iso | grep -v total").stdout
    assert set(files(fx)["writes"]) <= {"EROFS", "EACCES", "EPERM", "ENOTSUP", "EOPNOTSUPP"}
    assert files(fx)["writes"][1] == "EROFS"
    assert run(fx.session, "sh", "-c", "ls -laR --time-style=full-iso | grep -v total").stdout == before


def test_nothing_that_is_open_for_writing_can_be_handed_to_it(fx):
    # A socket in the workspace could be connected to, although the mount is only read.
    found = files(fx)
    assert found["socket"] == "EPERM"
    # Nor is there a pair of which one could be led there: of datagram sockets, which raw ones are as well.
    assert found["pairs"] == ["EPERM", "EPERM", "DONE"]


def test_its_own_files_lie_elsewhere_and_it_has_no_network(fx):
    assert files(fx)["cwd"] == "/srv"
    assert json.loads(fx.call("look").text)["interfaces"] == ["lo"]


def test_a_session_whose_workspace_is_not_here_gets_no_server(fx):
    with pytest.raises(SourceUnavailable, match="not there now"):
        fx.desk.call(fx.asked("files", session="ses_01J0000000000000000000000X"))


def test_a_workspace_that_is_not_there_is_not_made(sandboxes, sandbox_image):
    lender = f"sbx_{uuid.uuid4().hex}"
    asked = spec(sandboxes._instance, sandbox_image, workspace="/srv")
    asked = asked.model_copy(update={"borrows": SharedWorkspace(owner=lender, place="/workspace")})
    with pytest.raises(SandboxGone):
        sandboxes.open(asked)
    volumes = sandboxes._engine.api.volumes()["Volumes"] or []
    assert specs.container_name(sandboxes._instance, lender) not in {volume["Name"] for volume in volumes}
    assert isinstance(sandboxes.reattach(asked.owner, 1), SandboxMissing)
    sandboxes.destroy(asked.owner)


def test_a_server_that_still_reads_keeps_no_workspace_from_being_removed(sandboxes, sandbox_image):
    lender = sandboxes.open(spec(sandboxes._instance, sandbox_image))
    asked = spec(sandboxes._instance, sandbox_image, workspace="/srv")
    borrower = sandboxes.open(
        asked.model_copy(update={"borrows": SharedWorkspace(owner=lender.owner, place="/workspace")})
    )
    sandboxes.destroy(lender.owner)
    volumes = sandboxes._engine.api.volumes()["Volumes"] or []
    assert specs.container_name(sandboxes._instance, lender.owner) not in {volume["Name"] for volume in volumes}
    with pytest.raises(SandboxGone):
        run(borrower, "true")
    sandboxes.destroy(borrower.owner)
