"""`codesdk init`, `keys` and `tenants` on a data directory without a daemon."""

from __future__ import annotations

import json
import stat
from contextlib import closing

import pytest

from codesdk.bootstrap import Services
from codesdk.bootstrap.admin_services import open_admin_services
from codesdk.cli.console.arguments import InputWrong, parse_duration, parse_quota
from codesdk.cli.effective_settings import load_settings
from codesdk.cli.entrypoint import run_command
from codesdk.cli.stack.operator_key import LOCAL_OPERATOR, ensure_operator, write_key
from codesdk.domain.quotas import Resource
from codesdk.eventlog.hints import LocalHints
from codesdk.hosts import Capacity
from codesdk.jobs import LocalWakeups
from codesdk.settings.operator_key import KEY_FILE
from codesdk.tenancy.credentials import KEY_PREFIX
from codesdk.tenancy.principal import Reach, Role, Unauthenticated
from codesdk.worker.ownership.registration import HostOffer, register


@pytest.fixture
def place(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def codesdk(place, capsys):
    """Runs a command; its exit code, stdout and stderr."""

    def run(*words):
        code = run_command([*words, "--data-dir", str(place)])
        said = capsys.readouterr()
        return int(code), said.out, said.err

    return run


@pytest.fixture
def answer(codesdk):
    """Runs a command that works; its JSON."""

    def run(*words):
        code, out, err = codesdk(*words, "--json")
        assert code == 0, err
        return json.loads(out)

    return run


def holder_of(place, key):
    with open_admin_services(load_settings(place)) as (tenancy, _):
        return tenancy.directory.principal(key)


def test_init_makes_a_private_place_and_says_the_key_once_and_alone_on_stdout(codesdk, place):
    code, out, err = codesdk("init")
    key = out.strip()
    assert (code, out) == (0, f"{key}\n")
    assert key.startswith(KEY_PREFIX)
    assert key not in err
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    holder = holder_of(place, key)
    assert (holder.name, holder.roles, holder.reach) == ("operator", (Role.OPERATOR,), Reach.INSTANCE)
    assert not any(key.encode() in path.read_bytes() for path in place.rglob("*") if path.is_file())


def test_init_does_not_make_a_second_operator_silently(codesdk, answer, place):
    first = answer("init")["secret"]
    code, out, err = codesdk("init")
    assert (code, out) == (1, "")
    assert "--rotate" in err
    assert holder_of(place, first)
    assert len(answer("keys", "list")["keys"]) == 1


def test_rotating_gives_another_key_and_revokes_the_operators_others_only(answer, place):
    first = answer("init")
    ci = answer("keys", "create", "ci", "--role", "developer")
    second = answer("init", "--rotate")
    assert holder_of(place, second["secret"]).id == first["key"]["principal_id"]
    assert holder_of(place, ci["secret"]).name == "ci"
    with pytest.raises(Unauthenticated):
        holder_of(place, first["secret"])


def test_rotating_where_nobody_is_makes_the_operator(answer, place):
    assert holder_of(place, answer("init", "--rotate")["secret"]).name == "operator"


def test_rotating_keeps_commands_on_this_machine_going_where_they_used_that_key(answer, place):
    write_key(place, answer("init")["secret"])
    second = answer("init", "--rotate")["secret"]
    assert (place / KEY_FILE).read_text().strip() == second
    assert stat.S_IMODE((place / KEY_FILE).stat().st_mode) == 0o600


def test_init_leaves_what_up_made_alone_and_up_what_init_made(answer, place):
    said = []
    settings = load_settings(place)
    services = Services(settings, hints=LocalHints(), wakeups=LocalWakeups())
    local = ensure_operator(services, said.append)
    assert ensure_operator(services, said.append) == local
    services.close()
    assert len(said) == 1
    assert KEY_FILE in said[0]
    made = answer("init")["secret"]
    answer("init", "--rotate")
    assert (place / KEY_FILE).read_text().strip() == local != made
    holder = holder_of(place, local)
    assert (holder.name, holder.reach, set(holder.roles)) == (LOCAL_OPERATOR, Reach.INSTANCE, set(Role))


def test_a_name_that_somebody_else_has_is_not_taken_over(codesdk, answer):
    answer("init")
    operator = answer("tenants", "show", "default")["principals"][0]
    with_name = answer("keys", "create", operator["id"], "--name", "second")
    assert with_name["key"]["principal_id"] == operator["id"]
    code, _, err = codesdk("keys", "create", "nobody")
    assert code == 1
    assert "--role" in err


@pytest.mark.parametrize("words", [("keys", "list"), ("tenants", "list"), ("tenants", "create", "x")])
def test_where_there_is_no_installation_none_is_made(codesdk, place, words):
    code, _, err = codesdk(*words)
    assert code == 69
    assert "codesdk init" in err
    assert not place.exists()


def test_a_key_is_listed_by_its_beginning_and_revoked_by_its_id(codesdk, answer, place):
    answer("init")
    made = answer("keys", "create", "ci", "--role", "developer", "--program", "--expires", "90d", "--name", "build")
    code, out, _ = codesdk("keys", "list")
    assert code == 0
    assert made["key"]["id"] in out
    assert made["key"]["prefix"] in out
    assert made["secret"] not in out + json.dumps(answer("keys", "list"))
    assert answer("keys", "revoke", made["key"]["id"])["revoked_at"] is not None
    with pytest.raises(Unauthenticated):
        holder_of(place, made["secret"])
    assert codesdk("keys", "revoke", "key_none")[0] == 1


def test_a_tenant_is_made_limited_suspended_and_resumed(codesdk, answer, place):
    answer("init")
    tenant = answer("tenants", "create", "team x")["id"]
    key = answer("keys", "create", "ann", "--role", "operator", "--tenant", "team x")["secret"]
    assert holder_of(place, key).tenant_id == tenant
    quotas = answer("tenants", "quota", "team x", "sessions=3", "artifact_bytes=5GiB")["quotas"]
    own = {each["resource"]: each["limit"] for each in quotas if each["own"]}
    assert own == {"sessions": 3, "artifact_bytes": 5 * 1024**3}
    answer("tenants", "quota", tenant, "sessions=default")
    assert [each["own"] for each in answer("tenants", "quota", tenant)["quotas"]].count(True) == 1
    assert answer("tenants", "suspend", "team x")["suspended_at"] is not None
    with pytest.raises(Unauthenticated):
        holder_of(place, key)
    assert "suspended since" in codesdk("tenants", "list")[1]
    answer("tenants", "resume", tenant)
    assert holder_of(place, key).name == "ann"
    shown = codesdk("tenants", "show", "team x")[1]
    assert "ann" in shown
    assert "artifact_bytes" in shown
    assert [each["name"] for each in answer("tenants", "list")["tenants"]] == ["default", "team x"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("tenants", "show", "none"), 1),
        (("tenants", "create", "default"), 1),
        (("tenants", "create", "a\nb"), 64),
        (("tenants", "quota", "default", "sessions"), 64),
        (("tenants", "quota", "default", "planets=1"), 64),
        (("keys", "create", "x", "--role", "king"), 64),
        (("keys", "create", "x", "--role", "auditor", "--expires", "soon"), 64),
        (("keys", "create", "a\x1bb", "--role", "auditor"), 64),
        (("keys", "create", "x", "--role", "auditor", "--name", ""), 64),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(codesdk, answer, words, code):
    answer("init")
    before = answer("tenants", "show", "default"), answer("tenants", "list"), answer("keys", "list")
    found, out, err = codesdk(*words)
    assert (found, out) == (code, "")
    assert len(err.strip().splitlines()) == 1
    assert (answer("tenants", "show", "default"), answer("tenants", "list"), answer("keys", "list")) == before


@pytest.mark.parametrize(("text", "value"), [("45s", 45), ("30m", 1800), ("12h", 43200), ("90d", 7776000)])
def test_durations(text, value):
    assert parse_duration(text) == value


@pytest.mark.parametrize("text", ["", "0s", "-1d", "1", "1.5h", "1w", " 1d", "1d ", "9999999d", "\u0661d"])
def test_what_is_no_duration(text):
    with pytest.raises(InputWrong):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("sessions=3", (Resource.SESSIONS, 3)),
        ("artifact_bytes=2KiB", (Resource.ARTIFACT_BYTES, 2048)),
        ("api_keys=none", (Resource.API_KEYS, 0)),
        ("api_keys=default", (Resource.API_KEYS, None)),
    ],
)
def test_limits(text, value):
    assert parse_quota(text) == value


@pytest.mark.parametrize(
    "text", ["", "sessions", "sessions=", "sessions=0", "sessions=-1", "sessions=1GB", "x=1", "=1"]
)
def test_what_is_no_limit(text):
    with pytest.raises(InputWrong):
        parse_quota(text)


def test_groups_are_made_with_their_first_member_and_go_with_their_last(codesdk, answer):
    codesdk("init")
    made = answer("keys", "create", "ann", "--role", "approver", "--group", "finance")
    ann = made["key"]["principal_id"]
    answer("keys", "create", "bob", "--role", "approver")
    assert answer("groups", "list")["groups"] == [{"name": "finance", "members": [ann]}]
    assert len(answer("groups", "add", "finance", "bob", "ann")["members"]) == 2
    assert codesdk("groups", "list")[1] == "finance: ann, bob\n"
    assert answer("groups", "remove", "finance", "ann", "bob")["members"] == []
    assert answer("groups", "list")["groups"] == []


def test_a_group_is_named_as_policy_can_name_it_and_has_only_who_is_there(codesdk):
    codesdk("init")
    code, _, err = codesdk("groups", "add", "No Group", "ann")
    assert (code, "not a group name" in err) == (64, True)
    code, _, err = codesdk("groups", "add", "finance", "ann")
    assert (code, "no principal ann" in err) == (1, True)


def test_hosts_are_shown_drained_and_given_up_without_a_daemon(codesdk, answer, place):
    codesdk("init")
    assert codesdk("hosts", "list")[1] == "There is no host: no worker has ever run.\n"
    offer = HostOffer(engine="E1", labels={"zone": "a"}, capacity=Capacity(memory_bytes=8 * 1024**3, sessions=3))
    with closing(Services(load_settings(place), hints=LocalHints(), wakeups=LocalWakeups())) as services:
        register(services.writer, services.ids, "blue", {"base": "sha256:1"}, 1.0, offer=offer)
    shown = codesdk("hosts", "show", "blue")[1]
    for words in ("0 of 3", "0.0 of 8", "zone=a", "engine: E1", "image base: sha256:1"):
        assert words in shown
    assert answer("hosts", "drain", "blue")["state"] == "draining"
    assert codesdk("hosts", "activate", "blue")[1] == "blue is active; sessions there: 0.\n"
    assert answer("hosts", "lose", "blue")["state"] == "lost"
    assert [each["state"] for each in answer("hosts", "list")["hosts"]] == ["lost"]
    code, _, err = codesdk("hosts", "drain", "red")
    assert code == 1
    assert "There is no host red" in err
