"""What a tenant may have open at once on one API process: event streams, bytes of unfinished uploads."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest

from codesdk.tenancy.principal import Role
from stage import wait_for

from .conftest import running

STREAMS = 2
UPLOAD_BYTES = 4 * 1024**2
SSE = {"Accept": "text/event-stream"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    root = tmp_path_factory.mktemp("limits")
    apps = []

    def keep(app):
        apps.append(app)
        return app

    with running(root, 10.0, keep, streams_of_tenant=STREAMS, upload_bytes_of_tenant=UPLOAD_BYTES) as built:
        built.app = apps[0]
        yield built


def test_a_stream_above_the_tenants_limit_is_refused_and_others_are_not(stack):
    session, _ = stack.open_session()
    kinds = [f"/v1/sessions/{session.id}/events", "/v1/approvals/events"]
    with stack.http(stack.key()) as client, stack.http(stack.key(tenant="limits-other")) as other:
        with ExitStack() as opened:
            for path in kinds:
                assert opened.enter_context(client.stream("GET", path, headers=SSE)).status_code == 200
            for path in kinds:
                refused = client.get(path, headers=SSE)
                assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_STREAMS")
                assert "CODESDK_STREAMS_OF_TENANT" in refused.json()["advice"]
                assert int(refused.headers["retry-after"]) > 0
                assert client.get(path).status_code == 200  # pages are not limited
            with other.stream("GET", kinds[1], headers=SSE) as answer:
                assert answer.status_code == 200
        wait_for(lambda: reads(client, kinds[0]), "the closed streams to count no more", 20.0)


def reads(client, path):
    with client.stream("GET", path, headers=SSE) as answer:
        return answer.status_code == 200


def test_unfinished_uploads_above_the_tenants_limit_are_refused_and_others_are_not(stack):
    stop = threading.Event()
    answers = []

    def slow():
        yield bytes(UPLOAD_BYTES)
        stop.wait(20)
        yield b"x"

    key = stack.key(Role.OPERATOR, tenant="limits-uploads")
    with stack.http(key) as client, stack.http(stack.key(Role.OPERATOR, tenant="limits-other")) as other:
        sending = threading.Thread(target=lambda: answers.append(client.post("/v1/artifacts", content=slow())))
        sending.start()
        try:
            uploads = stack.app.state.unfinished_uploads
            wait_for(lambda: uploads._bytes.total() == UPLOAD_BYTES, "the upload to arrive", 20.0)
            refused = client.post("/v1/artifacts", content=b"x")
            assert (refused.status_code, refused.json()["code"]) == (429, "TOO_MANY_UPLOAD_BYTES")
            assert "CODESDK_UPLOAD_BYTES_OF_TENANT" in refused.json()["advice"]
            assert other.post("/v1/artifacts", content=b"x").status_code == 201
        finally:
            stop.set()
            sending.join(20)
        assert [answer.status_code for answer in answers] == [429]  # it is itself above the limit with its last byte
        assert client.post("/v1/artifacts", content=b"x").status_code == 201
