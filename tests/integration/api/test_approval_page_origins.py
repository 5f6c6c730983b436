"""Only the approval's own page decides: forged forms, frames and links of other sites don't, in a real browser."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from browser import browsing
from codesdk.tenancy.principal import Role
from tickets import minted


@contextmanager
def site(pages: dict[str, str]) -> Iterator[int]:
    """Another site, which serves these pages; yields its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = pages.get(self.path.partition("?")[0], "").encode()
            self.send_response(200 if text else 404)
            self.send_header("content-type", "text/html; charset=utf-8")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@pytest.fixture
def asked(standing):
    return standing.ask("make release")


@pytest.fixture
def ann(standing):
    return standing.principal(Role.APPROVER)[0]


@pytest.fixture
def url(standing, asked, ann):
    tickets = standing.services.one_time_links
    return tickets.page(minted(standing.services.writer, tickets, asked, ann), standing.url)


@pytest.fixture
def paused(standing):
    """What is approved is not run, so its state stays."""
    standing.worker.paused = True
    yield
    standing.worker.paused = False


def state(standing, asked):
    return standing.services.approvals.find(asked.tenant_id, asked.id)


def forged(url, asked, then="document.forms[0].submit()"):
    """A page that sends the form of the approval page, with its link and digest."""
    fields = {"digest": asked.digest, "verdict": "approve", "comment": "forged"}
    inputs = "".join(f'<input name="{name}" value="{escape(value)}">' for name, value in fields.items())
    # A field named `submit` would hide the method.
    return f'<form method="post" action="{url}">{inputs}</form><script>{then}</script>'


@pytest.mark.usefixtures("paused")
def test_the_pages_own_form_decides_and_no_other_sites_form_does(standing, asked, ann, url, chromium_command):
    script = f"fetch({json.dumps(url)}, {{method: 'POST', mode: 'no-cors', body: new URLSearchParams({{digest: {json.dumps(asked.digest)}, verdict: 'approve'}})}}).finally(() => document.title = 'sent')"
    pages = {
        "/form": forged(url, asked),
        "/hidden-referrer": '<meta name="referrer" content="no-referrer">' + forged(url, asked),
        "/fetch": f"<script>{script}</script>",
        "/frame": f'<iframe src="{url}" onload="document.title=\'loaded\'"></iframe>',
        "/sandboxed": f'<iframe sandbox="allow-scripts allow-forms allow-top-navigation" srcdoc="{escape(forged(url, asked).replace("<form", "<form target=_top"))}"></iframe>',
    }
    with site(pages) as port, browsing(chromium_command) as browser:
        # The same address with another port is the same site, but another origin; `localhost` is another site.
        for host in ("127.0.0.1", "localhost"):
            for page in ("/form", "/hidden-referrer"):
                browser.open(f"http://{host}:{port}{page}")
                browser.wait("location.pathname.startsWith('/approve/')")
                assert "did not come from the approval's own page" in browser.text()
            browser.open(f"http://{host}:{port}/sandboxed")
            browser.wait("location.pathname.startsWith('/approve/')")
            assert "did not come from the approval's own page" in browser.text()
            browser.open(f"http://{host}:{port}/fetch")
            browser.wait("document.title == 'sent'")
            before = len(browser.violations)
            browser.open(f"http://{host}:{port}/frame")
            browser.wait("document.title == 'loaded'")
            assert any("frame" in text for text in browser.violations[before:]), browser.violations
            assert state(standing, asked).state == "pending"
        browser.open(url)
        browser.press("button.yes")
        assert "Approved by somebody" in browser.text()
    decided = state(standing, asked)
    assert (decided.state, decided.decided_by, decided.comment) == ("approved", ann.id, None)


def send(standing, url, asked, headers=None, **fields):
    form = {"verdict": "approve", "digest": asked.digest, **fields}
    with standing.http() as client:
        return client.post(url, data={name: value for name, value in form.items() if value}, headers=headers or {})


@pytest.mark.usefixtures("paused")
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"referer": "https://evil.example/approve"},
        {"origin": "{own}.evil.example"},
        {"sec-fetch-site": "cross-site", "origin": "{own}"},
        {"sec-fetch-site": "same-site", "origin": "{own}", "referer": "{own}/approve/x"},
    ],
)
def test_a_forged_origin_is_refused_and_the_own_one_accepted(standing, asked, url, headers):
    forged_headers = {name: value.format(own=standing.url) for name, value in headers.items()}
    assert send(standing, url, asked, forged_headers).status_code == 403
    assert state(standing, asked).state == "pending"
    own = {"sec-fetch-site": "same-origin", "origin": standing.url, "referer": url}
    assert send(standing, url, asked, own).status_code == 303
    assert state(standing, asked).state == "approved"


@pytest.mark.usefixtures("paused")
def test_without_the_links_token_or_the_digest_nothing_is_decided(standing, asked, url):
    own = {"sec-fetch-site": "same-origin", "origin": standing.url}
    bare = url.rpartition("/")[0]
    assert send(standing, f"{bare}/", asked, own).status_code == 404
    assert send(standing, f"{bare}/csdk_tkt_{'A' * 43}", asked, own).status_code == 404
    assert send(standing, url, asked, own, digest="").status_code == 403
    assert state(standing, asked).state == "pending"
    assert send(standing, url, asked, own).status_code == 303
