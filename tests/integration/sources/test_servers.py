"""A server's life and its calls, on local sandboxes."""

from __future__ import annotations

import json

import pytest

from codesdk.domain.ids import SessionId
from codesdk.domain.quotas import QuotaExceeded, Resource
from codesdk.registry import InvalidInput, ToolWithheld, UnknownTool
from codesdk.sources.faults import SourceDied, SourceFault, SourceTimeout, SourceUnavailable
from codesdk.sources.servers.server import MAX_BACKOFF_S
from codesdk.sources.servers.server_list import ServerList
from codesdk.tenancy.principal import Reach, Role
from source_stage import source_stage, until

# -- calls ----------------------------------------------------------------------------------------------------------


def test_an_accepted_tool_is_called_and_answers(fx):
    assert fx.call("echo", text="hello").text == "hello"


def test_a_structured_result_comes_with_its_text(fx):
    result = fx.call("add", a=2, b=3)
    assert (result.text, result.structured, result.is_error) == ("5", {"sum": 5}, False)


def test_an_input_that_its_schema_does_not_name_is_refused(fx):
    tool = fx.registry.shared.resolve("fx.add")
    tool.check_input({"a": 1, "b": 2})
    with pytest.raises(InvalidInput):
        tool.check_input({"a": 1, "b": 2, "c": 3})


def test_a_tools_own_error_is_an_error_of_the_call_and_the_server_lives_on(fx):
    before = fx.call("pid").text.split()[0]
    result = fx.call("refuse")
    assert (result.text, result.is_error, result.code) == ("I will not.", True, "SOURCE_ERROR")
    assert fx.call("pid").text.split()[0] == before


def test_a_protocol_error_is_a_fault_with_its_words(fx):
    with pytest.raises(SourceFault, match=r"refused the call \(-32602\): no such thing"):
        fx.call("twice")


def test_progress_comes_as_lines_of_output_and_is_counted(fx):
    fx.lines.clear()
    result = fx.call("slow", steps=12)
    assert result.text == "done"
    assert fx.lines[0].startswith(b"[1/600] step 1")
    assert result.stdout.bytes == sum(map(len, fx.lines))


def test_many_calls_at_once_get_each_its_own_answer(fx):
    futures = [fx.begin(fx.asked("echo", text=f"number {number}")) for number in range(24)]
    assert [future.result(60).text for future in futures] == [f"number {number}" for number in range(24)]


def test_what_is_no_text_is_kept_and_nothing_is_fetched(fx):
    fx.attached.clear()
    text = fx.call("image").text
    assert [(item.name, item.content_type) for item in fx.attached] == [("image-1", "image/png")]
    assert "it is not valid base64" in text
    assert "file:///etc/passwd, which was not fetched" in text
    assert "inside" in text


def test_a_long_answer_is_shown_in_part_and_kept_whole(fx):
    fx.attached.clear()
    result = fx.call("big")
    assert len(result.text) < 2 * fx.stage.profile.show_output_bytes
    assert [len(item.content) for item in fx.attached] == [200_000]


def test_a_server_that_writes_to_stderr_without_end_waits_for_nobody(fx):
    assert fx.call("loud").text == "loud"


def test_no_variable_of_the_worker_is_in_a_servers_environment(fx, monkeypatch):
    monkeypatch.setenv("CODESDK_OPERATOR_KEY", "planted")
    assert "planted" not in fx.call("env").text


# -- times and ends ---------------------------------------------------------------------------------------------------


def test_a_call_that_is_not_answered_ends_in_its_time_and_the_server_is_told(fx):
    with pytest.raises(SourceTimeout):
        fx.desk.call(fx.asked("slow", timeout_s=0.5))
    until(lambda: json.loads(fx.call("cancelled").text) >= 1, "the server was told")


def test_a_withdrawn_call_ends_and_the_server_is_told(fx):
    told = json.loads(fx.call("cancelled").text)
    asked = fx.asked("slow")
    fx.lines.clear()
    future = fx.begin(asked)
    until(lambda: fx.lines, "the server is at it")
    assert fx.desk.cancel(asked.identity)
    assert future.result(60).code == "CANCELLED"
    until(lambda: json.loads(fx.call("cancelled").text) > told, "the server was told")
    assert not fx.desk.cancel(asked.identity)


def test_a_call_that_was_withdrawn_while_its_server_started_is_not_made(own):
    asked = own.asked("echo", text="too late")
    own.desk._lock.acquire()
    try:
        future = own.begin(asked)
    finally:
        own.desk._lock.release()
    until(lambda: own.desk.cancel(asked.identity) or future.done(), "it is under way")
    assert future.result(60).code in ("CANCELLED", None)  # it may have been quicker


# -- the server's life ------------------------------------------------------------------------------------------------


def test_a_server_is_started_by_the_first_call_and_serves_the_next(own):
    assert own.owners() == []
    first = own.call("pid").text.split()[0]
    assert own.call("pid").text.split()[0] == first
    assert len(own.owners()) == 1


def test_each_session_has_a_server_of_its_own(own):
    other = own.stage.open_session()
    assert own.call("pid").text.split()[0] != own.desk.call(own.asked("pid", session=other.session_id)).text.split()[0]
    assert len(own.owners()) == 2


def test_a_shared_server_serves_every_session(own):
    own.write(shared=True)
    own.registry.refresh()
    other = own.stage.open_session()
    assert own.call("pid").text.split()[0] == own.desk.call(own.asked("pid", session=other.session_id)).text.split()[0]


def test_a_sessions_server_counts_for_its_tenants_quota_and_a_shared_one_does_not(own):
    # The session's own sandbox takes what one has; a second would pass the limit.
    own.stage.limit(Resource.SANDBOX_MEMORY_BYTES, own.profile.memory_bytes + 1)
    with pytest.raises(QuotaExceeded):
        own.call("echo", text="x")
    assert own.owners() == []
    own.write(shared=True)
    own.registry.refresh()
    assert own.call("echo", text="x").text == "x"


def test_an_idle_server_is_stopped_and_started_again_by_the_next_call(own):
    first = own.call("pid").text
    own.clock.ahead += own.registry.shared.sources["fx"].manifest.idle_s + 1
    own.desk.tend()
    assert own.owners() == []
    assert own.call("pid").text != first


def test_a_server_ends_with_its_session(own):
    own.call("echo", text="x")
    subject = own.stage.subject
    own.stage.sessions.close(subject.tenant_id, SessionId(subject.session_id))
    own.desk.tend()
    assert own.owners() == []


def test_a_server_that_dies_is_started_again_each_time_after_a_longer_pause(own):
    own.clock.stop()
    with pytest.raises(SourceFault, match=r"ended \(exit code 3; last line: I am leaving"):
        own.call("die")
    assert own.call("echo", text="again").text == "again"
    with pytest.raises(SourceFault):
        own.call("die")
    with pytest.raises(SourceUnavailable, match="next start is in 1 s"):
        own.call("echo", text="too soon")
    own.clock.ahead += 1.1
    with pytest.raises(SourceFault):
        own.call("die")
    with pytest.raises(SourceUnavailable, match="next start is in 2 s"):
        own.call("echo", text="too soon")


def test_a_look_at_the_servers_does_not_shorten_the_pause(own):
    own.clock.stop()
    for _ in range(2):
        with pytest.raises(SourceFault):
            own.call("die")
        own.desk.tend()
    with pytest.raises(SourceUnavailable, match="next start is in 1 s"):
        own.call("echo", text="too soon")
    own.clock.ahead += 1.1 + MAX_BACKOFF_S
    own.desk.tend()  # so long after the pause it is as if it had never failed
    for _ in range(2):
        with pytest.raises(SourceFault):
            own.call("die")
    with pytest.raises(SourceUnavailable, match="next start is in 1 s"):
        own.call("echo", text="too soon")


def test_operators_see_what_runs_of_which_session_and_how_often_it_was_started_again(own):
    operator = own.stage.enroll("hq", "ann", Role.OPERATOR, reach=Reach.INSTANCE)[0]
    roster = ServerList(own.stage.database)

    def seen():
        own.desk.tend()
        return roster.listing(operator)

    assert seen() == []
    own.call("echo", text="x")
    (first,) = seen()
    assert (first.source, first.state, first.session_id) == ("fx", "running", own.stage.subject.session_id)
    assert (first.host, first.restarts, first.reason) == ("local", 0, "")
    assert abs(first.since - own.clock.now().timestamp()) < 300
    with pytest.raises(SourceFault):
        own.call("die")
    own.call("echo", text="again")
    (again,) = seen()
    assert (again.state, again.restarts) == ("running", 1)
    assert again.reason.startswith("ended (exit code 3")
    own.desk.close()
    assert roster.listing(operator) == []
    own.desk = own.worker()


def test_a_server_that_does_not_answer_the_handshake_is_given_up_and_nothing_is_left(own):
    own.write(env={"FX_SILENT": "1"}, start_s=0.5)
    own.registry.refresh()
    with pytest.raises(SourceUnavailable, match=r"did not answer the handshake within 0\.5 s"):
        own.call("echo", text="x")
    assert own.owners() == []


def test_a_command_that_is_not_there_says_so(own):
    own.write(argv=["no-such-mcp-server"])
    own.registry.refresh()
    with pytest.raises(SourceUnavailable, match="no-such-mcp-server"):
        own.call("echo", text="x")
    assert own.sent == []


def test_an_image_that_is_not_on_the_host_says_what_to_do(own):
    own.write(image="elsewhere")
    own.registry.refresh()
    with pytest.raises(SourceUnavailable, match=r"needs the image `elsewhere`.*restart the worker"):
        own.call("echo", text="x")


def test_another_manifest_is_another_server_and_the_old_one_goes(own):
    first = own.call("pid").text
    own.write(env={"COLOUR": "blue"})
    own.registry.refresh()
    assert json.loads(own.call("env").text)["COLOUR"] == "blue"
    assert own.call("pid").text.split()[0] != first.split()[0]
    own.desk.tend()
    assert len(own.owners()) == 1


def test_a_source_that_is_gone_from_the_registry_runs_no_more(own):
    asked = own.asked("echo", text="x")
    own.call("echo", text="x")
    (own.tools / "fx.yaml").unlink()
    own.registry.refresh()
    with pytest.raises(SourceUnavailable, match="no longer in the tool registry"):
        own.desk.call(asked)
    own.desk.tend()
    assert own.owners() == []


def test_what_a_killed_worker_left_is_removed_by_the_next(own):
    own.call("echo", text="x")
    (left,) = own.owners()
    next_one = own.worker(generation=2)
    try:
        next_one.tend()
        assert own.owners() == []
        assert own.sandboxes.reattach(left, 2).reason
    finally:
        next_one.close()


def test_a_worker_that_stops_ends_its_calls_and_leaves_nothing(own):
    future = own.begin(own.asked("slow"))
    until(lambda: own.desk._calls and own.owners(), "it runs")
    own.desk.close()
    with pytest.raises(SourceDied, match="stopped with its worker"):
        future.result(60)
    assert own.owners() == []
    own.desk = own.worker()


def test_a_secret_that_the_tenant_has_not_keeps_the_call_from_being_made(own):
    own.write(secrets=["token"])
    own.registry.refresh()
    result = own.call("echo", text="x")
    assert (result.code, own.owners()) == ("SECRET_MISSING", [])


def test_a_bound_of_policy_that_a_running_server_cannot_be_given_refuses_the_call(own):
    asked = own.asked("echo", text="x")
    assert own.desk.call(own.bounded(asked, memory_bytes=64 * 1024 * 1024)).code == "BOUND_NOT_MET"
    assert own.desk.call(own.bounded(asked, memory_bytes=2 * 1024**3, show_output_bytes=512)).text == "x"


# -- what was accepted ------------------------------------------------------------------------------------------------


def test_what_was_not_accepted_is_no_tool(here, stage):
    with source_stage(stage, here, here.image, accept=False) as made:
        assert made.registry.shared.names() == {"workspace.read"}
        made.accept("add", "echo")
        assert made.registry.shared.names() == {"workspace.read", "fx.add", "fx.echo"}


def test_the_installations_class_counts_and_not_what_the_server_says_of_itself(fx):
    tools = {tool.name: tool.classification.value for tool in fx.registry.shared.tools()}
    assert (tools["fx.add"], tools["fx.echo"]) == ("read-only", "dangerous")


@pytest.mark.parametrize(("how", "lost"), [("change", "fx.echo"), ("gone", "fx.gone")])
def test_a_tool_that_its_server_changes_is_taken_away_until_it_is_accepted(own, how, lost):
    assert own.call(how).text == "changed"
    until(lambda: own.registry.refresh() or own.registry.shared.resolve(lost).withheld, "it is taken away")
    with pytest.raises(ToolWithheld):
        own.desk.call(own.asked(lost.removeprefix("fx."), text="x") if lost == "fx.echo" else own.asked("gone"))
    assert not own.registry.shared.resolve("fx.add").withheld
    assert own.call("add", a=1, b=1).structured == {"sum": 2}


def test_a_changed_tool_is_there_again_once_it_is_accepted(own):
    own.write(env={"FX_EXTRA": "One more tool, quite harmless."})
    own.registry.refresh()
    own.accept()
    own.write(env={"FX_EXTRA": "Another description."})
    own.registry.refresh()
    own.call("echo", text="started")
    own.registry.refresh()
    assert own.registry.shared.resolve("fx.extra").withheld
    assert not own.registry.shared.resolve("fx.echo").withheld
    own.accept()
    assert own.registry.shared.resolve("fx.extra").withheld == ""
    assert own.registry.shared.resolve("fx.extra").description == "Another description."


def test_a_new_tool_of_a_server_does_not_appear(own):
    own.write(env={"FX_EXTRA": "One more tool."})
    own.registry.refresh()
    own.call("echo", text="started")
    own.registry.refresh()
    with pytest.raises(UnknownTool):
        own.registry.shared.resolve("fx.extra")
