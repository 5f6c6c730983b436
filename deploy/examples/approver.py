"""A program that answers approvals: verifies each webhook, decides, and posts its decision back. 40 lines, no framework.

    pip install standardwebhooks
    WEBHOOK_SECRET=whsec_… python approver.py 8080 'git status' 'make test'

It approves exactly the command lines named after the port and leaves everything else to people. Make its endpoint with
    codesdk webhooks create https://approver.example.com/ --type approval.requested --principal prn_…
"""

import json
import os
import re
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

SECRET = os.environ.get("WEBHOOK_SECRET", "")
if not re.fullmatch(r"whsec_[A-Za-z0-9+/=]{20,}", SECRET):
    sys.exit("approver.py: set WEBHOOK_SECRET to the whsec_... that `codesdk webhooks create` printed.")
if not sys.argv[1:2] or not sys.argv[1].isdigit():
    sys.exit("approver.py: name a port, and after it the command lines that may run.")
VERIFIER = Webhook(SECRET)
ALLOWED = set(sys.argv[2:])
SEEN: set[str] = set()  # a delivery may come twice, always under the same webhook-id


def decide(event: dict) -> None:
    """Approve what is known; say nothing about the rest, so that a person can."""
    data = event["data"]
    command = data.get("approval", {}).get("input", {}).get("command")
    if event["type"] == "approval.requested" and command in ALLOWED and (answer := data.get("answer")):
        vote = {"verdict": "approve", "digest": answer["digest"], "comment": "known to the approver program"}
        headers = {"Authorization": f"Bearer {answer['token']}", "Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(answer["url"], json.dumps(vote).encode(), headers), timeout=10)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers["content-length"]), 100_000))
        try:
            event = VERIFIER.verify(body, dict(self.headers))
        except WebhookVerificationError:
            self.send_error(401)
            return
        if self.headers["webhook-id"] not in SEEN:
            decide(event)
            SEEN.add(self.headers["webhook-id"])
        self.send_response_only(204)
        self.end_headers()


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
