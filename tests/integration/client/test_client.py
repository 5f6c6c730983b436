"""The Python client against a whole installation over HTTP: an API on a port, a worker, sandboxes of fakes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import pytest

from codesdk.client import AsyncClient, CallFailed, Client, ConflictError, NotFoundError, PermissionDeniedError, Session
from codesdk.client.errors import AuthenticationError, InvalidRequestError
from codesdk.tenancy.principal import Role
from stage import wait_for
from whole_stage import DEADLINE_S, Installation


@pytest.fixture
def installation(tmp_path: Path, redis_url: str) -> Iterator[Installation]:
    built = Installation(tmp_path, redis_url, gone_client_grace_s=1)
    with (tmp_path / "policies" / "policy.yaml").open("a") as policy:
        policy.write("  - {id: writes, effect: allow, classification: write}\n")
    try:
        built.start_api()
        built.start_worker()
        yield built
    finally:
        built.close()


def key_of(installation: Installation, name: str, *roles: Role) -> str:
    return installation.api.writer.run(
        lambda unit: installation.api.directory.enroll(unit, "default", name, roles or (Role.DEVELOPER, Role.APPROVER))
    )[1]


@pytest.fixture
def client(installation: Installation) -> Iterator[Client]:
    with Client(installation.url, key_of(installation, "app")) as client:
        yield client


@pytest.fixture
def session(client: Client) -> Iterator[Session]:
    with client.session(labels={"app": "test"}) as session:
        yield session


def test_a_command_runs_and_its_result_is_a_value(session: Session) -> None:
    result = session.run("echo hello")
    assert (result.ok, result.exit_code, result.stdout, result.state) == (True, 0, "echo hello", "completed")
    assert result.check() is result


def test_output_is_passed_on_once_while_the_command_runs(installation: Installation, session: Session) -> None:
    pieces: list[str] = []

    def release() -> None:
        wait_for(lambda: installation.ran("hold me"), "the command", DEADLINE_S)
        installation.release("hold me")

    other = threading.Thread(target=release)
    other.start()
    result = session.run("hold me", on_output=pieces.append)
    other.join(DEADLINE_S)
    assert result.ok
    assert "".join(pieces) == "hold me"


def test_a_denied_call_is_a_result_with_the_reason(session: Session) -> None:
    result = session.call("http.fetch", {"url": "https://example.com"})
    assert (result.denied, result.ok, result.exit_code) == (True, False, None)
    assert "denied" in result.text.lower() or result.code == "DENIED_BY_POLICY"
    with pytest.raises(CallFailed) as failed:
        result.check()
    assert failed.value.code == result.code


def test_an_approval_is_answered_by_the_callback(session: Session) -> None:
    asked = []

    def decide(approval: object) -> bool:
        asked.append(approval)
        return True

    session.on_approval(decide)
    assert session.run("risky one").ok
    assert [each.shown["input"]["command"] for each in asked] == ["risky one"]


def test_a_rejected_call_is_denied(session: Session) -> None:
    session.on_approval(lambda _: False)
    assert session.run("risky two").denied


def test_an_approval_that_nobody_answers_is_left_to_others(client: Client, session: Session) -> None:
    call = session.start_call("workspace.exec", {"command": "risky three"})
    assert call.state == "waiting_for_tool_decision"
    assert call.waits_for is not None
    wait_for(lambda: client.approvals(session_id=session.id), "the approval", DEADLINE_S)
    (pending,) = client.approvals(session_id=session.id)
    client.approve(pending)
    assert session.wait(call).ok


def test_a_started_call_outlives_the_client_that_started_it(installation: Installation) -> None:
    key = key_of(installation, "two")
    with Client(installation.url, key) as first:
        session = first.open_session()
        call = session.start_call("workspace.exec", {"command": "hold on"})
    wait_for(lambda: installation.ran("hold on"), "the command", DEADLINE_S)
    installation.release("hold on")
    with Client(installation.url, key) as second:
        again = second.attach(session.id)
        assert again.wait(again.find_call(call.tool_call_id)).stdout == "hold on"
        again.close()


def test_a_wait_that_is_interrupted_cancels_its_call(session: Session) -> None:
    def interrupt(_: object) -> bool:
        raise KeyboardInterrupt

    session.on_approval(interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.run("risky and interrupted")
    (call,) = session.calls()
    assert (call.state, session.find_call(call.tool_call_id).code) == ("denied", "CANCELLED")


def test_the_same_key_joins_the_call_and_another_input_is_refused(installation: Installation, session: Session) -> None:
    first = session.call("workspace.exec", {"command": "once"}, key="key-1")
    again = session.call("workspace.exec", {"command": "once"}, key="key-1")
    assert first.tool_call_id == again.tool_call_id
    assert installation.runs_of(session.id) == 1
    with pytest.raises(ConflictError) as refused:
        session.call("workspace.exec", {"command": "twice"}, key="key-1")
    assert refused.value.code == "CALL_ID_TAKEN"


def test_the_same_key_twice_at_once_runs_once(installation: Installation, session: Session) -> None:
    async def both() -> list[str]:
        async with AsyncClient(installation.url, key_of(installation, "dev-both")) as client:
            opened = await client.open_session()
            arguments = {"command": "at once"}
            calls = await asyncio.gather(
                *(opened.call("workspace.exec", arguments, key="same") for _ in range(8)), return_exceptions=False
            )
            assert installation.runs_of(opened.id) == 1
            await opened.close()
            return [call.tool_call_id for call in calls]

    assert len(set(asyncio.run(both()))) == 1


def test_events_are_read_once_and_in_order_until_the_session_is_closed(client: Client, session: Session) -> None:
    session.run("one")
    session.close()
    events = list(session.events())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[0].type == "session.created"
    assert events[-1].type == "sandbox.session_closed"
    assert next(session.events(after=3)).seq == 4


def test_calls_are_listed_newest_first_and_filtered(session: Session) -> None:
    for command in ("a", "b", "c"):
        session.run(command)
    session.call("workspace.list", {})
    assert [call.tool for call in session.calls()] == ["workspace.list"] + ["workspace.exec"] * 3
    assert len(list(session.calls(tool="workspace.exec", state="completed"))) == 3
    assert list(session.calls(state="denied")) == []


def test_errors_have_the_codes_of_the_api(installation: Installation, client: Client, session: Session) -> None:
    with pytest.raises(NotFoundError) as unknown:
        session.call("workspace.nothing", {})
    assert unknown.value.code == "UNKNOWN_TOOL"
    with pytest.raises(InvalidRequestError) as wrong:
        session.call("workspace.exec", {"comand": "x"})
    assert wrong.value.code == "INVALID_INPUT"
    with pytest.raises(NotFoundError):
        client.attach("ses_nothing")
    with (
        Client(installation.url, key_of(installation, "other")) as other,
        pytest.raises(NotFoundError) as foreign,
    ):
        other.attach(session.id).run("mine?")
    assert foreign.value.code == "SESSION_UNKNOWN"
    with Client(installation.url, "csdk_key_wrong") as stranger, pytest.raises(AuthenticationError):
        stranger.sessions()
    with (
        Client(installation.url, key_of(installation, "auditor", Role.AUDITOR)) as auditor,
        pytest.raises(PermissionDeniedError),
    ):
        auditor.open_session()


def test_a_closed_session_takes_no_call(session: Session) -> None:
    session.close()
    with pytest.raises(NotFoundError) as closed:
        session.run("late")
    assert closed.value.code == "SESSION_UNKNOWN"
    assert session.refresh().state == "closed"


def test_a_client_that_disconnects_withdraws_its_call(installation: Installation, session: Session) -> None:
    async def leave() -> None:
        async with AsyncClient(
            installation.url, session._transport._http.headers["authorization"].split()[1]
        ) as client:
            mine = await client.attach(session.id)
            waiting = asyncio.create_task(mine.run("hold and leave"))
            ran = partial(wait_for, lambda: installation.ran("hold and leave"), "the command", DEADLINE_S)
            await asyncio.to_thread(ran)
            waiting.cancel()

    asyncio.run(leave())
    wait_for(lambda: next(iter(session.calls())).state == "completed", "the withdrawal", DEADLINE_S)
    assert session.find_call(next(iter(session.calls())).tool_call_id).code == "CANCELLED"


def test_a_detached_call_outlives_a_request_that_joined_it_and_left(installation: Installation) -> None:
    key = key_of(installation, "joiner")
    with Client(installation.url, key) as client, client.session() as session:
        call = session.start_call("workspace.exec", {"command": "hold joined"}, key="joined")
        wait_for(lambda: installation.ran("hold joined"), "the command", DEADLINE_S)
        body = {"tool": "workspace.exec", "input": {"command": "hold joined"}, "wait_s": 60}
        headers = {"Idempotency-Key": "joined"}
        with installation.http(key) as http, pytest.raises(httpx2.ReadTimeout):
            http.post(f"/v1/sessions/{session.id}/calls", json=body, headers=headers, timeout=1.0)
        time.sleep(2)  # longer than the grace
        installation.release("hold joined")
        assert session.wait(call).stdout == "hold joined"


def test_a_workspace_is_copied_into_the_session(client: Client, tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "a.txt").write_text("alpha")
    with client.session(tmp_path / "repo") as session:
        assert "alpha" in session.call("workspace.read", {"path": "a.txt"}).text


def test_files_are_written_read_listed_moved_and_deleted(session: Session) -> None:
    content = bytes(range(256)) * 100
    written = session.files.write("data/a.bin", content)
    assert (written.created, written.bytes) == (True, len(content))
    assert session.files.read("data/a.bin") == content
    assert session.files.read("data/a.bin", offset=10, length=3) == content[10:13]
    session.files.write("data/b.txt", "text")
    assert session.files.read_text("data/b.txt") == "text"
    assert {(each.path, each.kind) for each in session.files.list("data")} == {
        ("data/a.bin", "file"),
        ("data/b.txt", "file"),
    }
    assert session.files.stat("data").kind == "directory"
    session.files.move("data/b.txt", "c.txt")
    session.files.delete("data", recursive=True)
    assert [each.path for each in session.files.list()] == ["c.txt"]
    with pytest.raises(NotFoundError):
        session.files.read("data/a.bin")


def test_a_write_on_a_condition_is_refused_when_it_does_not_hold(session: Session) -> None:
    first = session.files.write("a.txt", "one", if_absent=True)
    with pytest.raises(ConflictError):
        session.files.write("a.txt", "two", if_absent=True)
    session.files.write("a.txt", "two", if_match=first.sha256)
    with pytest.raises(ConflictError):
        session.files.write("a.txt", "three", if_match=first.sha256)


def test_directories_are_copied_both_ways(session: Session, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "a.txt").write_text("alpha")
    (source / "b.bin").write_bytes(b"\0\1")
    session.files.upload(source, "copy")
    session.files.download("copy", tmp_path / "back")
    assert (tmp_path / "back" / "deep" / "a.txt").read_text() == "alpha"
    assert (tmp_path / "back" / "b.bin").read_bytes() == b"\0\1"
    session.files.download("copy/b.bin", tmp_path / "one.bin")
    assert (tmp_path / "one.bin").read_bytes() == b"\0\1"


def test_a_file_that_needs_approval_is_written_once_it_is_given(installation: Installation, client: Client) -> None:
    rules = "version: 1\nrules:\n  - {id: careful, effect: ask, tool: workspace.write}\n"
    with client.session(policy=rules) as session:
        session.on_approval(lambda _: True)
        session.files.write("a.txt", "approved")
        assert session.files.read_text("a.txt") == "approved"
        session.on_approval(lambda _: False)
        with pytest.raises(PermissionDeniedError):
            session.files.write("b.txt", "rejected")
