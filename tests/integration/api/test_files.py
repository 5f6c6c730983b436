"""Files of a session's workspace over HTTP: bytes up and down under policy, on fake sandboxes and on Docker's."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import socket
import tarfile
import threading
import time
from urllib.parse import urlsplit

import pytest

from codesdk.sandbox.port import FileRefused, FileWrite
from codesdk.tenancy.principal import Role
from sandboxes import docker_sandboxes
from stage import wait_for
from whole_stage import Installation

MIB = 1024 * 1024
DEADLINE_S = 60.0
POLICY = """\
version: 1
name: files
default: deny
enable: [workspace.exec]
rules:
  - {id: reads, effect: allow, classification: read-only}
  - {id: commands, effect: allow, tool: workspace.exec}
  - {id: changes, effect: allow, tool: [workspace.write, workspace.move, workspace.delete]}
  - {id: sealed, effect: deny, paths: {any_of: [sealed]}, reason: This is sealed.}
  - {id: asked, effect: ask, tool: workspace.write, args: {/path: {glob: "asked/*"}}, approval: {timeout: 10m}}
  - {id: previewed, effect: ask, tool: workspace.write, args: {/path: {glob: "tried/*"}},
     approval: {timeout: 10m, preview: true}}
  - {id: keys, effect: deny, tool: workspace.write, args: {/content: {glob: "*BEGIN KEY*"}}, reason: No keys.}
  - {id: masked, effect: allow, tool: workspace.read, args: {/path: {glob: "masked/*"}},
     obligations: {redactions: [{pattern: "pin-[0-9]+"}]}}
"""


def sha256(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


class Client:
    """The files of one session, as its principal reaches them."""

    def __init__(self, installation):
        self.installation = installation
        self.agent = installation.open_session()
        self.http = installation.http(self.agent.key)
        self.base = f"/v1/sessions/{self.agent.session}/files"

    def get(self, path, what="", method="GET", headers=None, **params):
        return self.http.request(method, f"{self.base}{what}", params={"path": path, **params}, headers=headers)

    def put(self, path, content, **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.http.put(self.base, params={"path": path}, content=content, headers=named)

    def calls(self):
        return [e.payload for e in self.agent.events() if e.type == "tool.call.requested"]


@pytest.fixture(scope="module", params=["fake", pytest.param("docker", marks=pytest.mark.engine)])
def installation(request, redis_url, tmp_path_factory):
    made = Installation(tmp_path_factory.mktemp("files"), redis_url)
    (made.settings.policies_dir / "policy.yaml").write_text(POLICY)
    try:
        if request.param == "docker":
            engine = request.getfixturevalue("engine")
            image = request.getfixturevalue("sandbox_image")
            with docker_sandboxes(engine.host, made.settings.instance_id()) as sandboxes:
                made.on(sandboxes, image)
                try:
                    made.start_api()
                    made.start_worker()
                    yield made
                finally:
                    made.close()
        else:
            made.start_api()
            made.start_worker()
            yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def files(installation):
    client = Client(installation)
    with client.http:
        yield client


@pytest.fixture
def real(installation):
    if installation.sandboxes is installation.fakes:
        pytest.skip("fake workspaces have no links and run no commands")


@pytest.mark.parametrize("content", [b"", b"text\r\n", "ü\n".encode(), b"\0\xff binary", os.urandom(3 * MIB + 7)])
def test_bytes_come_back_as_they_were_sent(files, content):
    name = f"round/{secrets.token_hex(4)}"
    written = files.put(name, content)
    assert (written.status_code, written.headers["etag"]) == (201, f'"{sha256(content)}"'), written.text
    assert {**written.json(), "tool_call_id": ""} == {
        "tool_call_id": "",
        "path": name,
        "bytes": len(content),
        "created": True,
        "sha256": sha256(content),
    }
    read = files.get(name)
    assert (read.status_code, read.content, read.headers["etag"]) == (200, content, f'"{sha256(content)}"')
    assert read.headers["content-security-policy"] == "sandbox; default-src 'none'"
    head = files.get(name, method="HEAD")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(content)))
    assert files.put(name, content).status_code == 200, "the second write replaces it"


def test_each_request_is_a_call_on_record(installation):
    client = Client(installation)
    with client.http:
        client.put("a", b"\0")
        client.get("a")
        client.get("a", "/stat")
        client.get(".", "/list")
        client.http.post(f"{client.base}/move", json={"source": "a", "target": "b"})
        client.get("b", method="DELETE")
    inputs = [(call["name"], call["input"]) for call in client.calls()]
    assert inputs == [
        ("workspace.write", {"path": "a", "upload": {"sha256": sha256(b"\0"), "bytes": 1}}),
        ("workspace.read", {"path": "a", "raw": {}}),
        ("workspace.stat", {"path": "a"}),
        ("workspace.list", {"path": "."}),
        ("workspace.move", {"path": "a", "target": "b"}),
        ("workspace.delete", {"path": "b"}),
    ]
    client.agent.is_lawful()


def test_a_text_is_submitted_as_an_agent_submits_it(files):
    """Else a rule about the content of writes would not see what is uploaded."""
    assert files.put("note", b"hello").status_code == 201
    assert files.calls()[-1]["input"] == {"path": "note", "content": "hello"}
    refused = files.put("note", b"-- BEGIN KEY --")
    assert (refused.status_code, refused.json()["code"]) == (403, "DENIED_BY_POLICY")
    assert files.get("note").content == b"hello"


@pytest.mark.parametrize(
    ("asked", "status", "content", "range_"),
    [
        ("bytes=0-3", 206, b"\x000123"[:4], "bytes 0-3/10"),
        ("bytes=4-", 206, b"345678", "bytes 4-9/10"),
        ("bytes=-3", 206, b"678", "bytes 7-9/10"),
        ("bytes=8-99", 206, b"78", "bytes 8-9/10"),
        ("bytes=-99", 206, b"\x00012345678", "bytes 0-9/10"),
        ("bytes=0-3,5-6", 200, b"\x00012345678", None),
        ("bytes=3-1", 200, b"\x00012345678", None),
    ],
)
def test_a_range_reads_a_part(files, asked, status, content, range_):
    files.put("ten", b"\x00012345678")
    read = files.get("ten", headers={"Range": asked})
    assert (read.status_code, read.content, read.headers.get("content-range")) == (status, content, range_)


@pytest.mark.parametrize("asked", ["bytes=10-", "bytes=-0", f"bytes={10**18}-"])
def test_a_range_past_the_end_says_how_long_the_file_is(files, asked):
    files.put("ten", b"\x00012345678")
    read = files.get("ten", headers={"Range": asked})
    assert (read.status_code, read.headers["content-range"]) == (416, "bytes */10"), read.text


def test_if_range_resumes_only_the_same_file(files):
    etag = files.put("resumed", b"\x00one").headers["etag"]
    again = files.get("resumed", headers={"Range": "bytes=1-", "If-Range": etag})
    assert (again.status_code, again.content) == (206, b"one")
    files.put("resumed", b"\x00two")
    changed = files.get("resumed", headers={"Range": "bytes=1-", "If-Range": etag})
    assert (changed.status_code, changed.content) == (200, b"\x00two")


def test_what_the_caller_has_already_is_not_sent_again(files):
    etag = files.put("cached", b"same").headers["etag"]
    assert files.get("cached", headers={"If-None-Match": etag}).status_code == 304


@pytest.mark.parametrize("content", [b"text", b"\0bytes"])
def test_a_write_keeps_its_precondition(files, content):
    name = f"guarded/{secrets.token_hex(4)}"
    etag = files.put(name, content, If_None_Match="*").headers["etag"]
    assert files.put(name, content, If_None_Match="*").status_code == 412
    assert files.put(name, b"\0next", If_Match=etag).status_code == 200
    stale = files.put(name, content, If_Match=etag)
    assert (stale.status_code, stale.json()["code"]) == (412, "CONFLICT")
    assert files.get(name).content == b"\0next"


@pytest.mark.parametrize(
    "headers",
    [{"If_Match": "*"}, {"If_Match": '"a", "b"'}, {"If_None_Match": '"a"'}, {"If_Match": '"a"', "If_None_Match": "*"}],
)
def test_a_precondition_that_cannot_be_checked_is_refused(files, headers):
    assert files.put("unguarded", b"x", **headers).status_code == 422
    assert files.get("unguarded", "/stat").status_code == 404


def test_entries_are_listed_described_moved_and_deleted(installation):
    client = Client(installation)
    with client.http:
        client.put("d/one", b"1")
        client.put("d/e/two", b"22")
        listed = client.get("d", "/list", depth=2).json()
        assert [(e["path"], e["kind"]) for e in listed["entries"]] == [
            ("d/e", "directory"),
            ("d/one", "file"),
            ("d/e/two", "file"),
        ]
        assert client.get("d", "/list", limit=1).json()["next"]["offset"] == 1
        told = client.get("d/e/two", "/stat").json()
        assert (told["kind"], told["size"], told["mode"]) == ("file", 2, "0644")
        move = {"source": "d/one", "target": "d/e/two"}
        taken = client.http.post(f"{client.base}/move", json=move)
        assert (taken.status_code, taken.json()["code"]) == (409, "CONFLICT")
        assert client.http.post(f"{client.base}/move", json={**move, "replace": True}).json()["replaced"] is True
        full = client.get("d", method="DELETE")
        assert (full.status_code, full.json()["code"]) == (409, "IS_A_DIRECTORY")
        assert client.get("d", method="DELETE", recursive=True).json()["entries"] == 3
        assert client.get(".", "/list").json()["entries"] == []


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("nowhere", 404, "NOT_FOUND"),
        (".", 409, "IS_A_DIRECTORY"),
        ("../../etc/passwd", 403, "OUTSIDE_WORKSPACE"),
        ("/etc/passwd", 403, "OUTSIDE_WORKSPACE"),
        ("a/../../b", 403, "OUTSIDE_WORKSPACE"),
    ],
)
def test_what_cannot_be_read_says_why(files, path, status, code):
    read = files.get(path)
    assert (read.status_code, read.json()["code"]) == (status, code), read.text
    assert read.json()["details"]["tool_call_id"].startswith("call_")


def test_nothing_is_written_outside_of_the_workspace(files):
    for path in ("../x", "/etc/x", "a/../../x"):
        for content in (b"text", b"\0"):
            assert files.put(path, content).json()["code"] == "OUTSIDE_WORKSPACE"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["sealed/x", "./sealed/x", "a/../sealed/x", "sealed//x"])
def test_rules_about_paths_hold_in_every_spelling(files, method, path):
    refused = files.http.request(method, files.base, params={"path": path}, content=b"\0" if method == "PUT" else None)
    assert refused.status_code == 403
    if method != "HEAD":
        problem = refused.json()
        assert (problem["code"], problem["details"]["rules"]) == ("DENIED_BY_POLICY", ["sealed"])
        assert "This is sealed." in problem["detail"]


def test_bytes_that_policy_redacts_are_not_read(files):
    files.put("masked/note", b"pin-1234")
    for headers in ({}, {"Range": "bytes=0-3"}):
        refused = files.get("masked/note", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "NOT_REDACTABLE")
        assert b"1234" not in refused.content
    assert not [a for a in files.installation.api.artifacts.of_session(files.agent.session) if a.size == 8]


@pytest.mark.parametrize("content", [b"text", b"\0bytes"])
def test_an_ask_waits_for_a_person_and_the_same_key_brings_the_result(installation, content):
    client = Client(installation)
    with client.http:
        waiting = client.put("asked/x", content, Idempotency_Key="k1")
        assert (waiting.status_code, waiting.json()["state"]) == (202, "waiting_for_tool_decision")
        approval = client.agent.approval()
        assert waiting.json()["approval_id"] == approval.id
        again = client.put("asked/x", content, Idempotency_Key="k1")
        assert again.json()["tool_call_id"] == waiting.json()["tool_call_id"]
        assert client.agent.approve(approval).status_code == 200
        done = wait_for(
            lambda: (a := client.put("asked/x", content, Idempotency_Key="k1")).status_code != 202 and a,
            "the write",
            DEADLINE_S,
        )
        assert (done.status_code, done.json()["sha256"]) == (201, sha256(content)), done.text
        assert client.get("asked/x").content == content
        other = client.put("asked/x", b"\0other", Idempotency_Key="k1")
        assert (other.status_code, other.json()["code"]) == (409, "CALL_ID_TAKEN")
    assert [call["name"] for call in client.calls()].count("workspace.write") == 1


def test_agents_are_neither_offered_nor_given_these_arguments(files):
    files.put("offered", b"\0")
    for tool, given in (
        ("workspace_read", {"path": "offered", "raw": {}}),
        ("workspace_write", {"path": "x", "upload": {"sha256": sha256(b"\0"), "bytes": 1}}),
        ("workspace_write", {"path": "x", "content": "c", "if_sha256": "absent"}),
    ):
        assert files.agent.use(tool, given).code == "INVALID_INPUT"
    offered = {t["name"]: t for t in files.http.get("/v1/tools").json()["tools"]}
    assert not {"raw", "upload", "if_sha256"} & set(str(offered["workspace.write"]) + str(offered["workspace.read"]))


def test_only_the_principal_of_the_session_reaches_its_files(files, installation):
    files.put("mine", b"\0")
    other = installation.open_session()
    _, auditor = installation.api.writer.run(
        lambda unit: installation.api.directory.enroll(unit, "default", "auditor", (Role.AUDITOR,))
    )
    for key, status in ((other.key, 404), (auditor, 403)):
        with installation.http(key) as http:
            for method in ("GET", "PUT", "DELETE"):
                assert http.request(method, files.base, params={"path": "mine"}).status_code == status
    assert files.get("mine").content == b"\0"


def test_a_closed_session_has_no_files(installation):
    client = Client(installation)
    with client.http:
        client.put("x", b"\0")
        client.http.delete(f"/v1/sessions/{client.agent.session}")
        assert client.get("x").status_code == 404


def test_a_killed_upload_leaves_nothing(files, installation):
    before = len(files.calls())
    place = urlsplit(installation.url)
    with socket.create_connection((place.hostname, place.port)) as sender:
        head = f"PUT {files.base}?path=killed HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {8 * MIB}\r\n"
        sender.sendall(f"{head}Authorization: Bearer {files.agent.key}\r\n\r\n".encode() + bytes(3 * MIB))
        incoming = installation.settings.data_dir
        wait_for(lambda: list(incoming.rglob("*.part")), "the spooled part", DEADLINE_S)
    wait_for(lambda: not list(incoming.rglob("*.part")), "its removal", DEADLINE_S)
    assert files.get("killed", "/stat").status_code == 404
    assert len(files.calls()) == before + 1, "only that one was made"


def test_an_upload_that_is_too_large_names_the_setting(files, installation, monkeypatch):
    monkeypatch.setattr(installation.api.artifacts._incoming, "_limit", MIB)
    refused = files.put("large", bytes(MIB + 1))
    assert refused.status_code == 413
    assert "CODESDK_ARTIFACT_MAX_BYTES" in refused.text
    assert files.get("large", "/stat").status_code == 404


def test_waiting_requests_hold_neither_threads_nor_slots(installation):
    """More requests wait than the tenant has slots and the process threads."""
    if installation.sandboxes is not installation.fakes:
        pytest.skip("the fake's commands are held by the test")
    client = Client(installation)
    held = f"hold {secrets.token_hex(4)}"
    with client.http:
        client.put("x", b"\0")
        runner = threading.Thread(target=client.agent.call, args=(held,), daemon=True)
        runner.start()
        wait_for(lambda: installation.ran(held), "the command", DEADLINE_S)
        answers = []
        waiting = [threading.Thread(target=lambda: answers.append(client.put("x", b"\0"))) for _ in range(45)]
        for each in waiting:
            each.start()
        wait_for(lambda: len(client.calls()) >= 47, "the waiting writes", DEADLINE_S)
        began = time.monotonic()
        assert client.http.get("/v1/sessions").status_code == 200
        assert time.monotonic() - began < DEADLINE_S / 4
        assert not answers
        installation.release(held)
        for each in waiting:
            each.join(DEADLINE_S)
        runner.join(DEADLINE_S)
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.usefixtures("real")
def test_links_do_not_lead_out_of_the_workspace(files):
    files.agent.call("ln -s /etc/passwd out; ln -s /etc outdir; mkfifo pipe; echo in > inside; ln -s inside within")
    assert files.get("out").json()["code"] == "OUTSIDE_WORKSPACE"
    assert files.get("outdir/passwd").json()["code"] == "OUTSIDE_WORKSPACE"
    assert files.put("outdir/x", b"\0").json()["code"] == "OUTSIDE_WORKSPACE"
    assert files.get("pipe").json()["code"] == "NOT_A_FILE"
    assert files.get("within").content == b"in\n"
    assert files.get("out", "/stat").json()["kind"] == "symlink"


@pytest.mark.usefixtures("real")
def test_names_that_are_not_utf8_have_the_spelling_of_listings(files):
    files.agent.call("mkdir odd && printf x > \"$(printf 'odd/\\377')\"")
    (entry,) = files.get("odd", "/list").json()["entries"]
    assert files.get(entry["path"]).content == b"x"
    assert files.put(entry["path"], b"\0y").json()["created"] is False
    assert files.get(entry["path"], method="DELETE").status_code == 200
    assert files.get("odd", "/list").json()["entries"] == []


@pytest.mark.usefixtures("real")
def test_a_file_that_changes_is_not_sent_as_a_mixture(files):
    """The writer replaces each byte of the file: a mixture would have two kinds."""
    assert files.put("churn", b"\0" * (8 * MIB)).status_code == 201
    command = (
        "for i in 1 2 3 4 5 6 7 8; do for c in a b; do head -c 8388608 /dev/zero | tr '\\0' $c > churn; done; done"
    )
    churn = threading.Thread(target=files.agent.call, args=(command,), daemon=True)
    churn.start()
    seen = set()
    while churn.is_alive():
        read = files.get("churn")
        seen.add(read.status_code)
        if read.status_code == 200:
            assert read.headers["etag"] == f'"{sha256(read.content)}"'
    churn.join(DEADLINE_S)
    assert seen <= {200, 409}
    assert files.get("churn").content == b"b" * (8 * MIB)


def tar_of(*entries):
    """A tar of (name, content) pairs, and of any other members that are given."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for entry in entries:
            member, content = entry if isinstance(entry, tuple) else (entry, b"")
            if isinstance(member, str):
                member = tarfile.TarInfo(member)
                member.mode = 0o755 if content is None else 0o640
                member.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            member.size = len(content or b"")
            tar.addfile(member, io.BytesIO(content or b""))
    return target.getvalue()


def special(name, kind, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def members(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return {m.name: tar.extractfile(m).read() if m.isreg() else None for m in tar}


def put_tree(files, path, archive, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return files.http.put(f"{files.base}/tree", params={"path": path}, content=archive, headers=named)


def test_a_tree_comes_back_as_it_was_sent(files):
    large = os.urandom(9 * MIB)
    sent = {"a.txt": b"a", "d": None, "d/empty": None, "d/large": large, "d/ü": b"\0", "n" * 120: b"long"}
    done = put_tree(files, "trees/one", tar_of(*sent.items()))
    assert (done.status_code, done.json()["entries"]) == (200, 6), done.text
    got = files.get("trees/one", "/tree")
    assert (got.status_code, got.headers["codesdk-left-out"]) == (200, "0"), got.text
    assert members(got.content) == sent
    assert files.get("trees/one/a.txt", "/stat").json()["mode"] == "0640"


def test_many_small_files_are_unpacked(files):
    sent = {f"f{number:04}": str(number).encode() for number in range(700)}
    assert put_tree(files, "trees/many", tar_of(*sent.items())).json()["entries"] == 700
    assert members(files.get("trees/many", "/tree").content) == sent


def test_a_tree_lacks_what_may_not_be_read_by_its_own_path(files):
    for name in ("trees/mixed/open", "trees/mixed/sub/open"):
        files.put(name, b"\0open")
    sandbox_write(files, "trees/mixed/sealed/key", b"\0secret")
    sandbox_write(files, "masked/tree/pin", b"pin-1")
    got = files.get("trees/mixed", "/tree")
    assert (got.status_code, got.headers["codesdk-left-out"]) == (200, "2")
    assert set(members(got.content)) == {"open", "sub", "sub/open"}
    whole = files.get(".", "/tree")
    assert b"secret" not in whole.content
    assert b"pin-1" not in whole.content


def sandbox_write(files, path, content):
    """Put a file where policy lets no call write it."""
    sandbox = files.installation.worker.sandbox_registry.ready(files.agent.session)
    assert not isinstance(sandbox.files.write((FileWrite(path=path, content=content),)), FileRefused)


def test_a_tree_that_may_not_be_written_in_full_is_not_written(files):
    archive = tar_of(("good", b"1"), ("sealed/x", b"2"))
    refused = put_tree(files, "trees/partly", archive)
    assert (refused.status_code, refused.json()["code"]) == (403, "TREE_DENIED")
    assert "trees/partly/sealed/x" in refused.json()["detail"]
    assert files.get("trees/partly", "/stat").status_code == 404


@pytest.mark.parametrize(
    "entry",
    [
        ("../out", b""),
        ("/etc/out", b""),
        ("a/../../out", b""),
        special("link", tarfile.SYMTYPE, "/etc/passwd"),
        special("link", tarfile.SYMTYPE, "good"),
        special("hard", tarfile.LNKTYPE, "good"),
        special("pipe", tarfile.FIFOTYPE),
        special("null", tarfile.CHRTYPE),
    ],
    ids=["parent", "absolute", "climbs", "link-out", "link-in", "hard-link", "pipe", "device"],
)
def test_an_entry_that_is_no_plain_file_in_the_tree_refuses_the_archive(files, entry):
    refused = put_tree(files, "trees/bad", tar_of(("good", b"1"), entry))
    assert (refused.status_code, refused.json()["code"]) == (422, "ARCHIVE_REFUSED"), refused.text
    assert files.get("trees/bad", "/stat").status_code == 404


def test_a_header_that_claims_a_long_name_takes_no_memory(files):
    member = tarfile.TarInfo("long")
    member.type, member.size = tarfile.XHDTYPE, 1 << 30
    refused = put_tree(files, "trees/bad", member.tobuf() + bytes(12 * MIB))
    assert (refused.status_code, refused.json()["code"]) == (422, "ARCHIVE_REFUSED")


@pytest.mark.parametrize("archive", [b"no tar", b"\x1f\x8b\x08\x00" + bytes(600)])
def test_what_is_no_plain_tar_is_refused(files, archive):
    refused = put_tree(files, "trees/bad", archive)
    assert (refused.status_code, refused.json()["code"]) == (422, "ARCHIVE_REFUSED")


def test_a_tree_is_a_directory(files):
    files.put("trees/file", b"x")
    assert files.get("trees/file", "/tree").json()["code"] == "NOT_A_DIRECTORY"
    assert files.get("trees/nowhere", "/tree").status_code == 404


def test_an_approved_tree_covers_what_the_same_rule_asks_about(installation):
    client = Client(installation)
    archive = tar_of(("x", b"1"), ("sub/y", b"2"))
    with client.http:
        assert put_tree(client, "asked/tree", archive, Idempotency_Key="t").status_code == 202
        client.agent.approve(client.agent.approval())
        done = wait_for(
            lambda: (a := put_tree(client, "asked/tree", archive, Idempotency_Key="t")).status_code != 202 and a,
            "the tree",
            DEADLINE_S,
        )
        assert done.status_code == 200, done.text
        into = put_tree(client, ".", tar_of(("asked/z", b"1")))
        assert into.json()["code"] == "TREE_DENIED", "nobody was asked about that path"


@pytest.mark.usefixtures("real")
@pytest.mark.parametrize("what", ["", "/tree"])
def test_a_preview_shows_what_an_upload_changes(installation, what):
    client = Client(installation)
    content = tar_of(("x", b"\0in a tree")) if what else b"\0bytes"

    def send():
        headers = {"Idempotency-Key": "p"}
        return client.http.put(f"{client.base}{what}", params={"path": "tried/x"}, content=content, headers=headers)

    with client.http:
        assert send().status_code == 202
        approval = client.agent.approval()
        shown = str(approval.shown)
        assert "tried/x" in shown
        assert "failed_in_copy" not in shown
        client.agent.approve(approval)
        done = wait_for(lambda: (a := send()).status_code != 202 and a, "the write", DEADLINE_S)
        assert done.is_success, done.text
        result = client.http.get(f"/v1/sessions/{client.agent.session}/calls/{done.json()['tool_call_id']}").json()
        assert not result["result"].get("differs")


@pytest.mark.usefixtures("real")
def test_a_tree_has_no_links_and_no_special_files(files):
    files.agent.call(
        "mkdir -p linked && cd linked && echo in > file && ln -s /etc/passwd out && ln -s file in && mkfifo p"
    )
    got = files.get("linked", "/tree")
    assert (members(got.content), got.headers["codesdk-left-out"]) == ({"file": b"in\n"}, "3")


@pytest.mark.usefixtures("real")
def test_a_tree_is_not_written_through_a_link(files):
    files.agent.call("mkdir -p through && ln -s /tmp through/out")
    refused = put_tree(files, "through", tar_of(("out/file", b"1")))
    assert (refused.status_code, refused.json()["code"]) == (403, "OUTSIDE_WORKSPACE")
    assert files.agent.call("test -e /tmp/file || echo absent").output == "absent\n"
