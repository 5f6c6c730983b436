"""Every command ends with one line and a fitting exit code."""

from __future__ import annotations

import json

import pytest

from codesdk.cli import entrypoint
from codesdk.errors import ExitCode, Fault


class Broken(Fault):
    code = "BROKEN"
    exit_code = ExitCode.UNAVAILABLE


def answer_with(monkeypatch, error: BaseException) -> None:
    def fail(*_args: object, **_more: object) -> None:
        raise error

    monkeypatch.setattr(entrypoint, "app", fail)


def one_line(capsys) -> str:
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    return said.err.strip()


@pytest.fixture(autouse=True)
def no_debug(monkeypatch):
    monkeypatch.delenv("CODESDK_DEBUG", raising=False)


def test_a_fault_ends_as_its_message_and_advice_with_its_exit_code(monkeypatch, capsys):
    answer_with(monkeypatch, Broken("The thing is\nbroken.", advice="Mend it."))

    assert entrypoint.run_command(["up"]) == 69
    assert one_line(capsys) == "error: The thing is broken. Mend it."


def test_a_fault_is_one_json_object_where_json_was_asked_for(monkeypatch, capsys):
    answer_with(monkeypatch, Broken("It is broken.", advice="Mend it.", details={"file": "a.yaml"}))

    assert entrypoint.run_command(["up", "--json"]) == 69
    error = json.loads(one_line(capsys))["error"]
    assert (error["code"], error["message"], error["advice"]) == ("BROKEN", "It is broken.", "Mend it.")
    assert error["details"] == {"file": "a.yaml"}


def test_a_defect_is_one_line_that_names_its_log_and_shows_no_traceback(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    answer_with(monkeypatch, ZeroDivisionError("division by zero"))

    assert entrypoint.run_command(["up"]) == 70
    line = one_line(capsys)
    assert "ZeroDivisionError: division by zero" in line
    assert "Traceback" not in line
    (log,) = (tmp_path / "codesdk" / "log").iterdir()
    assert str(log) in line
    assert "Traceback" in log.read_text()


def test_a_defect_shows_its_traceback_where_debugging_was_asked_for(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("CODESDK_DEBUG", "1")
    answer_with(monkeypatch, ZeroDivisionError("division by zero"))

    assert entrypoint.run_command(["up"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (["bogus"], "bogus"),
        (["up", "--bogus"], "--bogus"),
        (["up", "--port", "many"], "--port"),
        (["up", "--port", "70000"], "--port"),
        (["approvals", "show"], "APPROVAL"),
    ],
)
def test_a_wrong_command_line_is_named_in_one_line(line, named, capsys):
    assert entrypoint.run_command(line) == 64
    said = one_line(capsys)
    assert said.startswith("error: ")
    assert named.lower() in said.lower()
    assert "codesdk --help" in said


def test_an_answer_to_nothing_is_refused_before_anybody_is_asked(capsys):
    assert entrypoint.run_command(["approvals", "approve"]) == 64
    assert "--rule" in one_line(capsys)


def test_no_arguments_show_the_help_and_no_error(capsys):
    assert entrypoint.run_command([]) == 64
    said = capsys.readouterr()
    assert "doctor" in said.out
    assert said.err == ""


def test_the_version_is_told_to_people_and_to_programs(capsys):
    assert entrypoint.run_command(["version"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("codesdk ")
    assert entrypoint.run_command(["--version"]) == 0
    assert capsys.readouterr().out == said
    assert entrypoint.run_command(["version", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"version", "contract", "python"}


def test_a_command_for_a_daemon_that_does_not_run_says_how_to_start_it(capsys, tmp_path):
    assert entrypoint.run_command(["approvals", "list", "--data-dir", str(tmp_path)]) == 69
    line = one_line(capsys)
    assert str(tmp_path) in line
    assert "codesdk up" in line


def test_a_replay_without_a_database_makes_none(capsys, tmp_path):
    assert entrypoint.run_command(["events", "replay", "ses_1", "--data-dir", str(tmp_path)]) == 69
    one_line(capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_bridge_needs_url_and_token_together(capsys, tmp_path):
    assert entrypoint.run_command(["mcp", "--url", "http://127.0.0.1:9/mcp", "--data-dir", str(tmp_path)]) == 64
    assert "--token" in one_line(capsys)


@pytest.mark.parametrize("option", ["--data-dir", "--policies", "--workspace"])
def test_an_empty_path_is_not_taken_for_the_current_directory(option, capsys):
    assert entrypoint.run_command(["up", option, ""]) == 64
    assert option in one_line(capsys)
