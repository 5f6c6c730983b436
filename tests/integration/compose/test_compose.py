"""`compose.yaml` for real: it starts, governs a call on PostgreSQL, loses nothing when parts of it end, gets a second
host with `compose.two-hosts.yaml`, and is removed completely.

The module shares one installation, in the order of the file: starting one takes half a minute.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from codesdk.cli.demo.agent import connect_mcp, text_of
from integration.compose.installation import SECOND, SERVICES, Installation, alone
from stage import wait_for

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]
KEPT = "kept across restarts\n"
LARGE = "".join(f"line {number} of a file that is too large for one event\n" for number in range(4000))
CALL_S = 60.0


@dataclass
class Story:
    """What the tests below have done, and what must still be there."""

    installation: Installation
    key: str = ""
    session: str = ""
    token: str = ""
    artifact: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)
    elsewhere: str = ""
    """A session on the second host."""
    second: str = ""
    """The id that the second worker's sandboxes are labelled with."""

    def call(self, tool: str, token: str = "", **arguments: Any) -> str:
        """Its answer. A service that is just coming back may refuse: the answer says that nothing was run.

        `token`: another session's.
        """
        until = time.monotonic() + CALL_S
        while True:
            try:
                result = asyncio.run(self._call(token or self.token, tool, arguments))
            except Exception as error:  # noqa: BLE001 (whatever the client raises where nobody listens)
                said = repr(error)
            else:
                said = text_of(result)
                if not result.is_error:
                    return said
            assert time.monotonic() < until, said
            time.sleep(0.5)

    async def _call(self, token: str, tool: str, arguments: dict[str, Any]) -> Any:
        async with connect_mcp(f"{self.installation.url}/mcp", token) as client:
            return await client.call_tool(tool, arguments)

    def open(self, **wish: Any) -> tuple[dict[str, Any], str]:
        """A session, and its token."""
        opened = self.installation.ask(self.key, "POST", "/v1/sessions", wish)
        return opened["session"], opened["token"]

    def find(self, session: str) -> dict[str, Any]:
        """How a session is now."""
        found: dict[str, Any] = self.installation.ask(self.key, "GET", f"/v1/sessions/{session}")
        return found

    def host(self, name: str, change: str = "") -> dict[str, Any]:
        """How a host is, after that change."""
        method, path = ("POST", f"/v1/hosts/{name}/{change}") if change else ("GET", f"/v1/hosts/{name}")
        found: dict[str, Any] = self.installation.ask(self.key, method, path)
        return found

    def hosts(self, *words: str) -> Any:
        """What the operator's command answers, in the API's container."""
        return json.loads(self.installation.inside("api", "codesdk", "hosts", *words, "--json"))

    def events(self) -> list[dict[str, Any]]:
        """The whole log, in pages."""
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            path = f"/v1/sessions/{self.session}/events?limit=500&after={after}"
            page = self.installation.ask(self.key, "GET", path)["events"]
            if not page:
                return found
            found += page

    def until(self, fact: Callable[[], Any], what: str) -> None:
        """Wait for it."""
        try:
            wait_for(fact, what, CALL_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.installation.compose('logs', '--tail', '20')}") from error

    def check(self) -> None:
        """Nothing of before is lost or changed, and the session works."""
        assert self.call("workspace_read", path="kept.txt") == KEPT
        now = self.events()
        assert [event["seq"] for event in now] == list(range(1, len(now) + 1))
        assert now[: len(self.seen)] == self.seen
        assert len(now) > len(self.seen)
        assert self.installation.ask(self.key, "GET", f"/v1/artifacts/{self.artifact}") == LARGE.encode()
        self.seen = now


@pytest.fixture(scope="module")
def story(engine, gvisor_engine, base_image, sandbox_image, tmp_path_factory):
    if not engine.host.startswith("unix://"):
        pytest.skip("the worker's container mounts the engine's socket, and this engine has none here")
    with alone():
        made = Installation(engine.host, gvisor_engine.host, base_image, tmp_path_factory.mktemp("compose"))
        made.build()
        made.remove_leftovers()
        try:
            made.up()
            yield Story(made)
        finally:
            made.remove_leftovers()
            made.forget_old_builds()


def test_the_operator_gets_a_key_once_and_opens_a_session(story):
    init = ("exec", "--no-TTY", "api", "codesdk", "init", "--json")
    story.key = json.loads(story.installation.compose(*init))["secret"]
    assert "secret" not in story.installation.compose(*init, check=False)
    opened = story.installation.ask(story.key, "POST", "/v1/sessions", {})
    assert opened["mcp_url"] == f"{story.installation.url}/mcp"
    story.session, story.token = opened["session"]["id"], opened["token"]


def test_calls_are_governed_and_recorded_in_postgresql(story):
    story.call("workspace_write", path="kept.txt", content=KEPT)
    assert "uid=" in story.call("workspace_exec", argv=["id"])
    story.artifact = story.installation.ask(story.key, "POST", "/v1/artifacts?name=large.txt", LARGE.encode())["id"]
    story.check()
    asked = ["psql", "--username=postgres", "--no-align", "--tuples-only", "codesdk", "--command"]
    counted = story.installation.inside(
        "postgres", *asked, f"SELECT count(*) FROM events WHERE session_id = '{story.session}'"
    )
    assert int(counted) >= len(story.seen)


def test_a_large_result_that_the_worker_kept_is_readable_through_the_api(story):
    story.call("workspace_write", path="large.txt", content=LARGE)
    story.call("workspace_read", path="large.txt")
    kept = [event["payload"].get("result_ref") for event in story.events() if event["type"] == "tool.call.completed"]
    artifact = next(ref for ref in reversed(kept) if ref)
    content = story.installation.ask(story.key, "GET", f"/v1/artifacts/{artifact['artifact_id']}")
    assert "too large for one event" in json.dumps(content)


def test_the_workers_process_has_neither_root_nor_a_capability(story):
    status = dict(
        line.split(":", 1) for line in story.installation.inside("worker", "cat", "/proc/1/status").splitlines()
    )
    assert set(status["Uid"].split()) == {"10001"}
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"


def test_sandboxes_hold_neither_the_engines_socket_nor_anything_of_the_host(story):
    made = story.installation
    containers = made.sandbox_containers(made.instance())
    assert containers
    for name in containers:
        (found,) = json.loads(made.docker("inspect", "--type", "container", name))
        assert {mount["Type"] for mount in found["Mounts"]} <= {"volume", "tmpfs"}
        assert found["HostConfig"]["NetworkMode"] == "none"


def test_api_and_worker_cannot_change_the_schema(story):
    script = (
        "from sqlalchemy import text; from codesdk.settings import Settings; from codesdk.storage.database import Database\n"
        "try:\n"
        "    with Database(Settings().resolved_database_url()).writer.begin() as c: c.execute(text('CREATE TABLE t (i int)'))\n"
        "except Exception as error: print(type(error.orig).__name__)\n"
    )
    assert story.installation.inside("api", "python", "-c", script).strip() == "InsufficientPrivilege"


@pytest.mark.parametrize(
    ("command", "refused"),
    [
        ("CONFIG GET dir", "NoPermissionError"),
        ("KEYS *", "NoPermissionError"),
        ("FLUSHALL", "NoPermissionError"),
        ("GET secret", "NoPermissionError"),
    ],
)
def test_the_queues_users_can_do_no_more_than_pass_messages(story, command, refused):
    script = (
        "import sys; from redis import Redis; from codesdk.settings import Settings\n"
        "try: print(Redis.from_url(Settings().redis_url).execute_command(*sys.argv[1:]))\n"
        "except Exception as error: print(type(error).__name__)\n"
    )
    words = command.split()
    assert story.installation.inside("api", "python", "-c", script, *words).strip() == refused


def test_no_password_stands_in_an_environment_or_a_log(story):
    made = story.installation
    source = made.compose("run", "--rm", "--no-deps", "credentials", "cat", "/credentials/source/passwords.json")
    passwords = json.loads(source).values()
    told = [json.dumps(made.container(name)) for name in ("postgres", "redis", "migrate", "api", "worker")]
    told.append(made.compose("logs", "--no-color"))
    assert len(passwords) == 5
    assert [word for word in [*passwords, story.key, story.token] for text in told if word in text] == []


@pytest.mark.parametrize("service", ["redis", "postgres", "api", "worker"])
def test_a_restart_of_one_service_loses_nothing(story, service):
    story.installation.compose("restart", service)
    story.installation.wait_healthy(service)
    story.check()


@pytest.mark.parametrize("service", ["api", "worker"])
def test_a_killed_service_comes_back_by_itself_and_nothing_is_lost(story, service):
    story.installation.kill(service)
    story.installation.wait_healthy(service, restarts=1)
    story.check()


def test_a_whole_installation_that_went_down_comes_up_with_its_sessions_and_with_a_second_host(story, sandbox_image):
    made = story.installation
    made.compose("down")
    made.lend_images(sandbox_image)
    made.up(*SERVICES, SECOND)
    story.check()
    # The key as the guide has it in the container; `sh` reads it from its arguments, for want of an input here.
    kept = 'umask 077; printf %s "$0" > /var/lib/codesdk/operator.key'
    made.inside("api", "sh", "-c", kept, story.key)
    found = story.hosts("list")["hosts"]
    assert [(host["name"], host["state"], host["away"]) for host in found] == [
        ("local", "active", False),
        ("second", "active", False),
    ]
    assert len({host["engine"] for host in found} - {""}) == 2
    assert all(0 <= host["silent_s"] < CALL_S for host in found)


def test_sessions_go_to_the_emptier_host_and_none_to_one_that_drains(story):
    second = story.host("second")["id"]
    session, token = story.open(snapshots=True)
    assert session["host_id"] == second
    story.call("workspace_write", token, path="kept.txt", content=KEPT)
    assert story.hosts("drain", "second")["state"] == "draining"
    elsewhere, _ = story.open()
    assert elsewhere["host_id"] != second
    assert story.call("workspace_read", token, path="kept.txt") == KEPT
    assert story.host("second", "activate")["state"] == "active"
    story.elsewhere = session["id"]


def test_the_sessions_of_a_host_that_died_end_and_go_on_elsewhere(story):
    made, session = story.installation, story.elsewhere
    story.until(lambda: story.find(session)["snapshot_artifact"], "a snapshot")
    story.second = made.instance(SECOND)
    made.compose("kill", SECOND)
    assert story.host("second", "lose")["state"] == "lost"
    story.until(lambda: story.find(session)["state"] == "closed", "its session to end")
    assert story.find(session)["closed_reason"] == "host lost"
    again, with_token = story.open(from_session=session)
    assert again["host_id"] == story.find(story.session)["host_id"]
    assert story.call("workspace_read", with_token, path="kept.txt") == KEPT


def test_removed_as_the_guide_says_it_leaves_nothing(story):
    made = story.installation
    instance, other = made.instance(), story.second
    mine, others = made.sandbox_containers(instance), made.sandbox_containers(other, made.second_host)
    assert mine
    assert others  # what the worker that was killed has left
    made.remove()
    assert made.objects() == []
    assert made.sandbox_containers(instance) == made.sandbox_volumes(instance) == []
    left = made.sandbox_containers(other, made.second_host), made.sandbox_volumes(other, made.second_host)
    assert left == ([], [])
    attached = [entry.read_text() for entry in Path("/sys/block").glob("loop*/loop/backing_file")]
    assert [file for file in attached if any(name in file for name in (*mine, *others))] == []
