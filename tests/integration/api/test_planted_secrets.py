"""Keys and tokens are in no log, event, error or file: planted, used correctly and incorrectly, then searched for."""

from __future__ import annotations

import json
import logging

from codesdk.cli.entrypoint import run_command
from codesdk.cli.stack.operator_key import write_key
from codesdk.settings.operator_key import KEY_FILE
from codesdk.tenancy.credentials import KEY_PREFIX, TOKEN_PREFIX, mint_secret
from codesdk.tenancy.principal import Reach, Role


def test_secrets_are_in_no_log_answer_event_or_file(stack, helpers, caplog, capsys):
    caplog.set_level(logging.DEBUG)
    services = stack.services
    _, chief = services.writer.run(
        lambda unit: services.directory.enroll(unit, "default", "chief", tuple(Role), reach=Reach.INSTANCE)
    )
    write_key(stack.settings.data_dir, chief)
    place = ["--data-dir", str(stack.settings.data_dir)]
    unknown, stale = mint_secret(KEY_PREFIX), mint_secret(TOKEN_PREFIX)
    heard = []
    with stack.http(chief) as client:
        holder = client.post("/v1/principals", json={"name": "ann", "roles": ["developer"]}).json()
        made = client.post("/v1/keys", json={"principal_id": holder["id"], "name": "laptop"}).json()
        opened = client.post("/v1/sessions", json={}).json()
        secrets = {"chief": chief, "key": made["secret"], "token": opened["token"], "unknown": unknown, "stale": stale}
        session = opened["session"]["id"]

        async def work():
            async with stack.client(opened["token"], "auto") as agent:
                await agent.call_tool("workspace_read", {"path": "a.txt"})
                await agent.call_tool("workspace_read", {"path": 7})

        helpers.within(work())
        lists = ("keys", "principals", "tenants", "quotas", "sessions", f"sessions/{session}")
        heard += [client.get(f"/v1/{what}").text for what in lists]
        heard.append(client.get(f"/v1/sessions/{session}/events").text)
        # Where people put them by mistake.
        heard.append(client.get(f"/v1/sessions/{session}/events", params={"after": made["secret"]}).text)
        heard.append(client.post("/v1/keys", json={"principal_id": holder["id"], "name": "k", "ttl_s": chief}).text)
        heard.append(client.post("/v1/sessions", json={"permission_mode": opened["token"]}).text)
        revoked = client.delete(f"/v1/keys/{made['key']['id']}")
        heard.append(revoked.text)
        heard.append(client.delete(f"/v1/sessions/{session}").text)
    for wrong in (unknown, made["secret"], opened["token"], stale):
        with stack.http(wrong) as client:
            heard.append(client.get("/v1/sessions").text)
            heard.append(client.post("/mcp", json={}).text)
            heard.append(client.get("/v1/sessions", headers={"Authorization": f"Basic {wrong}"}).text)
    for words in (["keys", "list"], ["tenants", "list"], ["tenants", "show", "default"], ["sessions", "list"]):
        for form in ([], ["--json"]):
            assert run_command([*words, *place, *form]) == 0
            said = capsys.readouterr()
            heard += [said.out, said.err]
    stack.stop()
    services.writer.close()
    kept = {
        path: path.read_bytes()
        for path in stack.settings.data_dir.rglob("*")
        if path.is_file() and path.name != KEY_FILE  # which holds one on purpose, for this user only
    }
    assert any(path.name == "codesdk.db" for path in kept)
    # The caller's own side logs in this process too; and the product's server writes no access log.
    records = [r for r in caplog.records if not r.name.startswith(("httpx2", "httpcore2", "uvicorn.access", "asyncio"))]
    logged = "\n".join(f"{record.getMessage()} {record.__dict__}" for record in records)
    assert "created key" in logged
    for name, secret in secrets.items():
        tail = secret[-20:]  # what is shown of a key is its beginning
        assert tail not in logged, f"{name} is in the log"
        assert not [text for text in heard if tail in text], f"{name} is in an answer"
        assert not [path for path, content in kept.items() if tail.encode() in content], f"{name} is in a file"
    assert made["key"]["prefix"] in json.dumps(heard)
