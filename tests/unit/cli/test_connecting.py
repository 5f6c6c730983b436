"""The configuration that `codesdk connect` writes for each client, without changing the rest of the client's file."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from codesdk.cli.app import app
from codesdk.cli.client_config import client_check, config_file, jsonc
from codesdk.cli.client_config.client_files import client_files
from codesdk.cli.client_config.clients import CLIENTS, ClientKind, Endpoint, as_json, as_toml
from codesdk.cli.client_config.connect import BuiltInsStayOn
from codesdk.cli.client_config.merge import NotMergeable, merge_json, merge_toml
from codesdk.cli.client_config.settings import ConfigEntry
from codesdk.cli.console.files import CannotWrite

TO = Endpoint("http://127.0.0.1:8765/mcp", "csdk_ses_secret", 710)
BOUNDED = Endpoint("http://127.0.0.1:8765/mcp", "csdk_ses_secret", 360, 300)
GIVEN = ["--url", TO.url, "--token", TO.token]
LIMITS = {
    ClientKind.CLAUDE: ("timeout", 710_000),
    ClientKind.CODEX: ("tool_timeout_sec", 710),
    ClientKind.GEMINI: ("timeout", 710_000),
    ClientKind.OPENCODE: ("timeout", 710_000),
    ClientKind.QWEN: ("timeout", 710_000),
    ClientKind.KIMI: ("toolTimeoutMs", 710_000),
}
JSONS = [kind for kind in ClientKind if not CLIENTS[kind].toml]


def text(kind, to=TO):
    client = CLIENTS[kind]
    return (as_toml if client.toml else as_json)(client.piece(to))


@pytest.mark.parametrize("kind", LIMITS)
def test_the_clients_own_limit_is_always_written(kind):
    key, value = LIMITS[kind]
    assert CLIENTS[kind].piece(TO).entry[key] == value


@pytest.mark.parametrize("kind", ClientKind)
def test_the_token_stands_in_a_piece_only_where_it_must(kind):
    assert (TO.token in text(kind)) is CLIENTS[kind].holds_token


@pytest.mark.parametrize("kind", ClientKind)
def test_a_time_of_the_sessions_own_stands_beside_the_limit(kind):
    assert not {"CodeSDK-Wait", "CODESDK_CLIENT_WAIT_S"} & set(re.findall(r"[\w-]+", text(kind)))
    assert '"300"' in text(kind, BOUNDED)


def test_codexs_piece_is_the_tables_that_it_says():
    piece = CLIENTS[ClientKind.CODEX].piece(BOUNDED)
    found = tomllib.loads(as_toml(piece))
    assert found["mcp_servers"] == {"codesdk": piece.entry}
    assert found["web_search"] == "disabled"
    assert {"shell_tool", "unified_exec", "view_image", "multi_agent"} <= found["features"].keys()
    assert not any(found["features"].values())


def test_kimis_second_file_is_the_table_that_it_says():
    _, second = client_files(CLIENTS[ClientKind.KIMI], Path("mcp.json"), TO)
    assert tomllib.loads(second.text) == {"tools": {"enabled": ["mcp__codesdk__*"]}}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize("kind", JSONS)
@given(
    others=st.dictionaries(
        st.text().filter(
            lambda key: key not in ("mcpServers", "mcp", "servers", "inputs", "tools", "permissions", "permission")
        ),
        VALUES,
    )
)
def test_everything_else_in_a_json_file_stays(kind, others):
    piece = CLIENTS[kind].piece(TO)
    top = piece.path[0]
    before = {**others, top: {"other": {"url": "http://elsewhere"}, "codesdk": {"old": True}}}
    after = json.loads(merge_json(json.dumps(before), piece))
    assert after[top] == {"other": {"url": "http://elsewhere"}, "codesdk": piece.entry}
    assert {key: after[key] for key in others} == others
    assert list(after)[: len(before)] == list(before)


@pytest.mark.parametrize("kind", JSONS)
def test_writing_twice_is_writing_once(kind):
    piece = CLIENTS[kind].piece(TO)
    once = merge_json("", piece)
    assert merge_json(once, piece) == once


@pytest.mark.parametrize(
    "found",
    ['{"a": 1 // why\n, "b": nan}', "[]", '"x"', "{", '{"mcpServers": []}', '{"a": 1, "a": 2}'],
)
def test_a_json_file_that_we_cannot_read_whole_is_refused(found):
    with pytest.raises(NotMergeable):
        merge_json(found, CLIENTS[ClientKind.CLAUDE].piece(TO))


TOML = """\
# my settings
model = "o9"  # the good one

[mcp_servers.other]
command = "other"

[mcp_servers.codesdk]
url = "http://old"

[mcp_servers.codesdk.http_headers]
"X-Old" = "1"

[profiles."a.b"]
text = '''
no table
'''
"""


def codexs_table():
    """Its server alone, without the settings that switch its built-in tools off."""
    piece = CLIENTS[ClientKind.CODEX].piece(TO)
    return ConfigEntry(piece.path, piece.entry)


def test_a_toml_file_keeps_its_comments_and_tables():
    piece = codexs_table()
    merged = merge_toml(TOML, piece)
    found = tomllib.loads(merged)
    assert found["mcp_servers"] == {"other": {"command": "other"}, "codesdk": piece.entry}
    assert found["profiles"] == {"a.b": {"text": "no table\n"}}
    assert "# the good one" in merged
    assert "X-Old" not in merged
    assert merge_toml(merged, piece) == merged


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_comments_behind_our_table_and_the_ends_of_lines_stay_in_a_toml_file(end):
    piece = codexs_table()
    ours = '[mcp_servers.codesdk]\nurl = "x"  # ours\n# inside\nenabled = true\n'
    aside = "# put aside:\n# [mcp_servers.old]\n\n# of the team\n"
    found = f'model = "a"\n\n{ours}\n{aside}[profiles.x]\na = 1\n'
    wanted = f'model = "a"\n\n{aside}[profiles.x]\na = 1\n\n{as_toml(piece)}'
    merged = merge_toml(found.replace("\n", end), piece)
    assert merged == wanted.replace("\n", end)
    assert merge_toml(merged, piece) == merged
    assert merge_toml(f"{ours}# the last\n", piece) == f"# the last\n\n{as_toml(piece)}"


@pytest.mark.parametrize(
    "found",
    [
        'mcp_servers = { codesdk = { url = "x" } }',
        'mcp_servers.codesdk.url = "x"',
        "text = '''\n[mcp_servers.codesdk]\n'''\n",
        "[mcp_servers.codesdk]\ntext = '''\n[other]\n'''\n",
        "not toml",
    ],
)
def test_a_toml_file_that_would_say_something_else_afterwards_is_refused(found):
    with pytest.raises(NotMergeable):
        merge_toml(found, CLIENTS[ClientKind.CODEX].piece(TO))


SETTINGS = """\
# my settings
model = "o9"  # the good one
web_search = "live"

[features]
# mine
shell_tool = true
goals = false  # enough
remote_plugin = true

[profiles.work]
model = "o8"
"""


def test_settings_of_a_toml_file_that_switch_tools_on_are_replaced_and_the_others_stay():
    piece = CLIENTS[ClientKind.CODEX].piece(TO)
    merged = merge_toml(SETTINGS, piece)
    found, mine = tomllib.loads(merged), tomllib.loads(SETTINGS)
    off = {setting.path[-1]: setting.value for setting in piece.more if setting.path[0] == "features"}
    assert found["features"] == {**off, "remote_plugin": True}
    assert (found["web_search"], found["model"], found["profiles"]) == ("disabled", "o9", mine["profiles"])
    assert [line for line in ("# my settings", "# mine", "# the good one", "# enough") if line not in merged] == []
    assert merge_toml(merged, piece) == merged


@pytest.mark.parametrize("found", ["features = { shell_tool = true }", "features.shell_tool = true", "features = 1"])
def test_a_toml_file_whose_settings_cannot_be_replaced_line_by_line_is_refused(found):
    with pytest.raises(NotMergeable):
        merge_toml(found, CLIENTS[ClientKind.CODEX].piece(TO))


def test_denied_tools_are_added_to_the_users_own():
    _, second = client_files(CLIENTS[ClientKind.CLAUDE], Path(".mcp.json"), TO)
    text = '{\n  "permissions": {\n    "deny": ["Read(./.env)", "Bash"], // mine\n    "allow": ["Bash"]\n  }\n}\n'
    found = jsonc.read(merged := second.merged(text))
    assert found["permissions"]["deny"][:2] == ["Read(./.env)", "Bash"]
    assert {"Bash", "Read", "Write", "Edit", "WebFetch", "WebSearch", "Agent"} <= set(found["permissions"]["deny"])
    assert len(found["permissions"]["deny"]) == len(set(found["permissions"]["deny"]))
    assert found["permissions"]["allow"] == ["Bash", "mcp__codesdk"]
    assert "// mine" in merged
    assert second.merged(merged) == merged


def test_a_permission_of_the_users_that_allows_a_shell_is_replaced():
    piece = CLIENTS[ClientKind.OPENCODE].piece(TO)
    found = jsonc.read(merge_json('{"permission": {"*": "ask", "bash": "allow"}}', piece))
    assert list(found["permission"].items()) == [("*", "deny"), ("codesdk_*", "allow")]


@pytest.mark.parametrize(
    ("kind", "found", "named"),
    [
        ("opencode", '{"agent": {"build": {"permission": {"bash": "allow"}}}}', "agent.build.permission"),
        ("opencode", '{"agent": {"own": {"tools": {"bash": true}}}}', "agent.own.tools"),
        ("opencode", '{"mode": {"build": {"tools": {"bash": true}}}}', "mode.build.tools"),
        ("codex", "[profiles.work.features]\nshell_tool = true\n", "profiles.work.features"),
    ],
)
def test_a_file_that_would_switch_built_in_tools_on_again_is_refused(kind, found, named):
    client = CLIENTS[ClientKind(kind)]
    with pytest.raises(NotMergeable, match=re.escape(named)):
        (merge_toml if client.toml else merge_json)(found, client.piece(TO))


@pytest.mark.parametrize("kind", ["claude", "gemini", "opencode", "qwen", "kimi", "generic"])
def test_a_client_that_goes_on_without_its_server_starts_the_bridge_that_tells_its_agent(kind):
    entry = CLIENTS[ClientKind(kind)].piece(TO).entry
    line = entry["command"] if kind == "opencode" else [entry["command"], *entry["args"]]
    assert line == ["codesdk", "mcp", "--tell-agent", "--url", TO.url]
    assert "CODESDK_TOKEN" in (entry.get("env") or entry["environment"])


def test_codex_starts_only_with_its_server():
    assert CLIENTS[ClientKind.CODEX].piece(TO).entry["required"] is True


KEEPS = ["cursor", "vscode", "generic"]


@pytest.mark.parametrize("kind", KEEPS)
def test_a_client_that_keeps_its_own_tools_is_told_first_of_all(kind):
    ended = connect(kind, *GIVEN)
    assert ended.exit_code == 0
    assert "keeps its own" in ended.output.splitlines()[0]
    assert json.loads(connect(kind, *GIVEN, "--json").stdout)["stays_on"]


@pytest.mark.parametrize("kind", KEEPS)
def test_strict_refuses_a_client_that_keeps_its_own_tools_and_writes_nothing(kind, tmp_path):
    ended = connect(kind, *GIVEN, "--strict", "--write", "--file", str(tmp_path / "mcp.json"))
    assert isinstance(ended.exception, BuiltInsStayOn)
    assert ended.exit_code != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [kind for kind in ClientKind if kind not in KEEPS])
def test_strict_lets_a_client_pass_whose_tools_its_files_switch_off(kind, tmp_path):
    ended = connect(kind, *GIVEN, "--strict", "--write", "--file", str(tmp_path / "file"))
    assert ended.exit_code == 0, ended.output
    assert "no tools of its own" in ended.output


def test_both_files_of_a_client_are_written_and_can_be_taken_back(tmp_path):
    second = tmp_path / ".claude" / "settings.local.json"
    second.parent.mkdir()
    second.write_text('{"model": "opus"}')
    line = ["claude", *GIVEN, "--write", "--file", str(tmp_path / ".mcp.json"), "--json"]
    answer = json.loads(connect(*line).stdout)
    assert [each["file"] for each in answer["files"]] == [str(tmp_path / ".mcp.json"), str(second)]
    assert "Bash" in json.loads(second.read_text())["permissions"]["deny"]
    undo = answer["notes"][-1]
    assert undo == f"To undo it: rm {tmp_path}/.mcp.json; mv {second}.before-codesdk {second}"
    assert Path(f"{second}.before-codesdk").read_text() == '{"model": "opus"}'


def connect(*arguments):
    return CliRunner().invoke(app, ["connect", *arguments])


def test_it_prints_and_writes_nothing_unless_told(tmp_path):
    ended = connect("claude", *GIVEN, "--file", str(tmp_path / "mcp.json"))
    assert ended.exit_code == 0
    assert '"timeout": 710000' in ended.stdout
    assert "export CODESDK_TOKEN=csdk_ses_secret" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_it_merges_into_the_named_file_and_says_so_in_json(tmp_path):
    place = tmp_path / "deep" / "settings.json"
    place.parent.mkdir()
    place.write_text('{"theme": "dark"}')
    place.chmod(0o644)
    ended = connect("gemini", *GIVEN, "--write", "--file", str(place), "--json")
    answer = json.loads(ended.stdout)
    assert (answer["written"], answer["file"]) == (True, str(place))
    found = json.loads(place.read_text())
    assert (found["theme"], found["mcpServers"]["codesdk"]["args"][-1]) == ("dark", TO.url)
    assert stat.S_IMODE(place.stat().st_mode) == 0o600  # it holds the token now


def test_a_file_that_cannot_be_merged_stays_as_it_is(tmp_path):
    place = tmp_path / "mcp.json"
    place.write_text('{"a": 1, /* mine }')
    ended = connect("cursor", *GIVEN, "--write", "--file", str(place))
    assert isinstance(ended.exception, NotMergeable)
    assert place.read_text() == '{"a": 1, /* mine }'
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.json"]


def test_a_file_that_cannot_be_merged_is_told_before_a_session_is_opened(tmp_path):
    place = tmp_path / "mcp.json"
    place.write_text("// mine")
    ended = connect("cursor", "--write", "--file", str(place), "--data-dir", str(tmp_path / "where nothing runs"))
    assert isinstance(ended.exception, NotMergeable)


def test_a_time_of_the_sessions_own_goes_to_the_bridge_by_its_environment():
    ended = connect("generic", *GIVEN, "--wait", "300")
    assert '"CODESDK_CLIENT_WAIT_S": "300"' in ended.stdout


def test_a_note_says_how_long_a_call_should_have():
    assert "at least 710 s" in connect("generic", *GIVEN).output


def test_a_link_to_a_file_stays_a_link(tmp_path):
    real, link = tmp_path / "dotfiles.json", tmp_path / "mcp.json"
    real.write_text("{}")
    link.symlink_to(real)
    connect("cursor", *GIVEN, "--write", "--file", str(link))
    assert link.is_symlink()
    assert "codesdk" in real.read_text()


COMMENTED = """\
{
    // what I like
    "theme": "dark", /* not light */
    "url": "http://example.org//x", // no comment inside
    "mcpServers": {
        // the other one
        "other": { "url": "http://elsewhere" }, // stays
    },
}
"""


@pytest.mark.parametrize("kind", JSONS)
def test_comments_layout_and_commas_behind_the_last_member_stay(kind):
    piece = CLIENTS[kind].piece(TO)
    text = COMMENTED.replace("mcpServers", piece.path[0])
    merged = merge_json(text, piece)
    found = jsonc.read(merged)
    assert found[piece.path[0]] == {"other": {"url": "http://elsewhere"}, "codesdk": piece.entry}
    assert found["url"] == "http://example.org//x"
    assert [line for line in text.splitlines() if line not in merged.splitlines()] == []
    assert f'        "codesdk": {{\n            "{next(iter(piece.entry))}"' in merged
    assert merge_json(merged, piece) == merged


SPACE = st.sampled_from(["", " ", "\n", "  \n\t", "// x, }\n", "/* ] , */", "\r\n"])


@st.composite
def commented(draw, value):
    """That value as JSON, with spaces, comments and last commas anywhere that they may be."""
    space = lambda: draw(SPACE)  # noqa: E731
    if isinstance(value, dict | list) and value:
        keys = value if isinstance(value, dict) else [None] * len(value)
        inner = value.values() if isinstance(value, dict) else value
        told = [
            f"{space()}{'' if key is None else json.dumps(key) + space() + ':'}{space()}{draw(commented(each))}{space()}"
            for key, each in zip(keys, inner, strict=True)
        ]
        last = "," + space() if draw(st.booleans()) else ""
        marks = "{}" if isinstance(value, dict) else "[]"
        return marks[0] + ",".join(told) + last + marks[1]
    return json.dumps(value)


@given(st.data(), st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.lists(st.text(max_size=3), max_size=2))
def test_a_value_is_put_anywhere_and_nothing_else_is_read_otherwise(data, before, more):
    text = data.draw(SPACE) + data.draw(commented(before)) + data.draw(SPACE)
    assert jsonc.read(text) == before
    path = [*more, "ours"]
    try:
        merged = jsonc.put(text, path, {"a": [1, "//"]})
    except ValueError:
        assert any(not isinstance(before.get(key), dict) for key in more)
        return
    wanted = json.loads(json.dumps(before))
    inner = wanted
    for key in more:
        inner = inner.setdefault(key, {})
    inner["ours"] = {"a": [1, "//"]}
    assert jsonc.read(merged) == wanted


def test_items_are_put_behind_those_of_a_list():
    text = '{\n  "inputs": [\n    {"id": "a"}, // mine\n  ]\n}\n'
    assert jsonc.append(text, ("inputs",), [1, 2]) == (
        '{\n  "inputs": [\n    {"id": "a"}, // mine\n    1,\n    2\n  ]\n}\n'
    )
    with pytest.raises(ValueError, match="not a list"):
        jsonc.append('{"inputs": {}}', ("inputs",), [1])
    with pytest.raises(ValueError, match="not an object"):
        jsonc.append('{"a": []}', ("a", "inputs"), [1])


def test_a_file_is_kept_as_it_was_before_we_were_put_into_it(tmp_path):
    place, kept = tmp_path / "settings.json", tmp_path / "settings.json.before-codesdk"
    place.write_bytes(b'{"theme": "dark"}\r\n')
    place.chmod(0o640)
    first = json.loads(connect("gemini", *GIVEN, "--write", "--file", str(place), "--json").stdout)
    again = json.loads(connect("gemini", *GIVEN, "--write", "--file", str(place), "--json").stdout)
    assert (first["kept"], again["kept"]) == (str(kept), None)
    assert (kept.read_bytes(), stat.S_IMODE(kept.stat().st_mode)) == (b'{"theme": "dark"}\r\n', 0o640)


def test_what_a_client_wrote_meanwhile_is_not_written_over(tmp_path):
    place = tmp_path / "settings.json"
    place.write_text('{"theme": "dark"}')
    with pytest.raises(CannotWrite, match="by another program"):
        config_file.replace(place, '{"theme": "light"}', "{}", private=False)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("settings.json", '{"theme": "dark"}')]


def test_what_cannot_be_written_leaves_nothing_beside_the_file(tmp_path):
    with pytest.raises(CannotWrite, match="not valid text"):
        config_file.replace(tmp_path / "mcp.json", "", "\udcff", private=True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_was_not_there_has_nothing_to_keep(tmp_path):
    connect("cursor", *GIVEN, "--write", "--file", str(tmp_path / "mcp.json"))
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.json"]


@pytest.mark.parametrize("behind", [0, 380, 390, 395, 400])
def test_no_part_of_the_token_stands_in_what_a_program_says_last(behind, tmp_path, monkeypatch):
    program = tmp_path / "codex"
    program.write_text(f"#!/bin/sh\nprintf '%s%{behind}s' \"$CODESDK_TOKEN\" \"\" | tr ' ' x\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(client_check.ToolsNotSeen) as refused:
        client_check.list_client_tools(ClientKind.CODEX, TO)
    assert "secret" not in str(refused.value)
