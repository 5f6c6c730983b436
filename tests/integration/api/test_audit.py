"""The audit over HTTP, and the entries that the process itself writes."""

from __future__ import annotations

from codesdk.tenancy.principal import Reach, Role


def test_deletions_keys_and_changes_of_policy_are_read_by_an_auditor(stack, helpers):
    services = stack.services
    operator, key = stack.principal(Role.OPERATOR)
    enrolled = services.directory.enroll
    _, far = services.writer.run(lambda unit: enrolled(unit, "default", "far", (Role.AUDITOR,), reach=Reach.INSTANCE))
    with stack.http(key) as client:
        artifact = client.post("/v1/artifacts", content=b"bytes").json()
        client.delete(f"/v1/artifacts/{artifact['id']}")
        made = client.post("/v1/keys", json={"principal_id": operator.id, "name": "k"}).json()
        assert client.delete(f"/v1/keys/{made['key']['id']}").status_code == 200
    with stack.http(stack.key(Role.AUDITOR)) as auditor:
        page = auditor.get("/v1/audit", params={"limit": 2}).json()
        assert [entry["act"] for entry in page["entries"]] == ["artifact.deleted", "key.created"]
        rest = auditor.get("/v1/audit", params={"after": page["next"]}).json()
        assert [(entry["act"], entry["actor"]) for entry in rest["entries"]] == [("key.revoked", operator.id)]
        assert page["entries"][0]["details"]["content_hash"] == artifact["content_hash"]
        assert auditor.get("/v1/audit", params={"tenant_id": "installation"}).status_code == 404
    policy = stack.settings.policies_dir / "policy.yaml"
    was = services.bundles.shared.bundle.hash
    policy.write_text(policy.read_text().replace("Reading is allowed.", "Reading is fine."))

    def in_force():
        with stack.http(far) as auditor:
            kept = auditor.get("/v1/audit", params={"tenant_id": "installation"}).json()["entries"]
        return [entry["details"] for entry in kept] if len(kept) > 1 else []

    first, second = helpers.eventually(in_force)
    assert (first["hash"], first["before"]) == (was, "")
    assert (second["hash"], second["before"]) == (services.bundles.shared.bundle.hash, was)
