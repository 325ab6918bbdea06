#!/usr/bin/env python3
"""A receiver of webhooks that verifies each request with the standardwebhooks of PyPI.

    interop/webhook/receiver.py SECRET...

It prints its port, and answers 204 if every secret verifies the request, else 422. A request is changed in turn where it
is signed, and has to be refused each time.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

SECRETS = [Webhook(secret) for secret in sys.argv[1:]]
OTHER = Webhook("whsec_" + "AAAA" * 8)


def accepts(webhook, body, headers):
    try:
        webhook.verify(body, headers, json_parse=False)
    except WebhookVerificationError:
        return False
    return True


def verdict(body, headers):
    """What is wrong with a request; None if nothing is."""
    for number, webhook in enumerate(SECRETS):
        if not accepts(webhook, body, headers):
            return f"secret {number} does not verify it"
        if accepts(webhook, body + b"x", headers):
            return f"secret {number} verifies another body"
        for name, value in [("webhook-id", "another"), ("webhook-timestamp", headers["webhook-timestamp"] + "0")]:
            if accepts(webhook, body, {**headers, name: value}):
                return f"secret {number} verifies another {name}"
    return "another secret verifies it" if accepts(OTHER, body, headers) else None


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        wrong = verdict(body, {name.lower(): value for name, value in self.headers.items()})
        self.send_response(422 if wrong else 204)
        if wrong:
            self.send_header("content-length", str(len(wrong)))
        self.end_headers()
        if wrong:
            self.wfile.write(wrong.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
print(server.server_address[1], flush=True)
server.serve_forever()
