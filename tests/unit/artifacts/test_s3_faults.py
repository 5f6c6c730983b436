"""Faults of an S3-compatible server, played by a fake one."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from codesdk.artifacts import ArtifactsUnavailable
from codesdk.artifacts.blobs import BlobMissing
from codesdk.artifacts.s3 import ArtifactsUrlWrong, S3Blobs, S3Location, parse_s3_url
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.domain.clock import SystemClock

KEY = "ab" + "0" * 62
CONTENT = b"0123456789" * 100


class Faulty:
    """A server that answers each request as `answer` says."""

    def __init__(self):
        self.requests = []
        self.answer = lambda handler: self.give(handler, 200, b"")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self):
                self.rfile.read(int(self.headers.get("content-length", 0)))
                outer.requests.append((self.command, self.path, self.headers.get("range")))
                outer.answer(self)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = handle_any  # noqa: N815 (the library's names)

            def log_message(self, *_):
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def give(self, handler, status, body, *, length=None, headers=()):
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body) if length is None else length))
        handler.end_headers()
        handler.wfile.write(body)
        if length is not None:
            handler.close_connection = True

    def refuse(self, status, code):
        body = f"<Error><Code>{code}</Code><Message>said so</Message></Error>".encode()
        self.answer = lambda handler: self.give(handler, status, b"" if handler.command == "HEAD" else body)

    def close(self):
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()


def blobs_at(endpoint, read_s=5.0):
    return S3Blobs(
        S3Location("bucket", "p/", endpoint, "", "key", "secret"), SystemClock(), read_s=read_s, connect_s=1.0
    )


@pytest.fixture
def server():
    made = Faulty()
    yield made
    made.close()


@pytest.fixture
def blobs(server, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)  # the library's pauses between its tries
    made = blobs_at(server.endpoint)
    yield made
    made.close()


@pytest.fixture
def put(tmp_path):
    def put(blobs):
        with SpoolDirectory(tmp_path, 10_000).spool() as spool:
            spool.write(CONTENT)
            blobs.put(KEY, spool)

    return put


def everything(blobs, put):
    """Each verb once."""
    return {
        "put": lambda: put(blobs),
        "read": lambda: list(blobs.read(KEY, 0, 10)),
        "size": lambda: blobs.size(KEY),
        "delete": lambda: blobs.delete(KEY),
        "keys": lambda: list(blobs.keys()),
        "sweep": lambda: blobs.sweep(0.0),
    }


VERBS = ("put", "read", "size", "delete", "keys", "sweep")


@pytest.mark.parametrize("verb", VERBS)
def test_a_server_that_is_gone_is_unavailable(put, verb, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    blobs = blobs_at(endpoint)
    with pytest.raises(ArtifactsUnavailable) as gone:
        everything(blobs, put)[verb]()
    assert gone.value.retryable
    assert endpoint in str(gone.value)
    blobs.close()


@pytest.mark.parametrize("verb", VERBS)
def test_an_answer_of_503_is_tried_again_and_then_unavailable(server, blobs, put, verb):
    server.refuse(503, "SlowDown")
    with pytest.raises(ArtifactsUnavailable):
        everything(blobs, put)[verb]()
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("answer", "advice"), [((403, "AccessDenied"), "access key"), ((404, "NoSuchBucket"), "Create the bucket")]
)
def test_a_refusal_says_what_to_mend(server, blobs, put, answer, advice):
    server.refuse(*answer)
    with pytest.raises(ArtifactsUnavailable) as refused:
        put(blobs)
    assert advice in refused.value.advice()
    assert "secret" not in str(refused.value)


def test_a_server_that_says_nothing_is_given_up(server, put, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    stop = threading.Event()
    server.answer = lambda _: stop.wait(20)
    blobs = blobs_at(server.endpoint, read_s=0.1)
    with pytest.raises(ArtifactsUnavailable):
        blobs.size(KEY)
    stop.set()
    blobs.close()


def part(handler, content):
    first, last = handler.headers["range"].removeprefix("bytes=").split("-")
    return content[int(first) : int(last) + 1]


def test_a_body_that_breaks_off_is_taken_up_where_it_broke(server, blobs):
    def answer(handler):
        wanted = part(handler, CONTENT)
        server.give(handler, 206, wanted[:300], length=len(wanted))

    server.answer = answer
    assert b"".join(blobs.read(KEY, 0, len(CONTENT))) == CONTENT
    assert [asked for _, _, asked in server.requests] == [f"bytes={n}-999" for n in (0, 300, 600, 900)]


def test_bodies_that_bring_nothing_end_as_unavailable(server, blobs):
    server.answer = lambda handler: server.give(handler, 206, b"", length=len(part(handler, CONTENT)))
    with pytest.raises(ArtifactsUnavailable):
        list(blobs.read(KEY, 0, len(CONTENT)))


def test_an_object_that_is_too_short_is_missing(server, blobs):
    server.answer = lambda handler: server.give(handler, 206, part(handler, CONTENT[:400]))
    with pytest.raises(BlobMissing):
        # The second request begins past its end, where a real server answers 416.
        list(blobs.read(KEY, 0, len(CONTENT)))


def test_a_range_past_the_end_is_missing(server, blobs):
    server.refuse(416, "InvalidRange")
    with pytest.raises(BlobMissing):
        list(blobs.read(KEY, 5000, 10))


@pytest.mark.parametrize(
    "url", ["", "s3://", "http://bucket/x", "s3://key:secret@bucket/x", "s3://bucket/x?a=b", "bucket"]
)
def test_a_url_that_names_no_bucket_is_refused_without_repeating_it(url):
    with pytest.raises(ArtifactsUrlWrong) as wrong:
        parse_s3_url(url, endpoint="", region="", access_key="", secret_key="")
    assert "secret@" not in str(wrong.value)


def test_the_prefix_ends_with_one_slash_or_is_empty():
    prefixes = [
        parse_s3_url(url, endpoint="", region="", access_key="", secret_key="").prefix
        for url in ("s3://b", "s3://b/", "s3://b/a/c/")
    ]
    assert prefixes == ["", "", "a/c/"]


def test_an_endpoint_that_is_no_url_is_refused():
    with pytest.raises(ArtifactsUrlWrong, match="CODESDK_S3_ENDPOINT"):
        blobs_at("not a url")
