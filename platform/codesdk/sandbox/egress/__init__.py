"""Egress without a network: what a tool may reach, and the proxy beside the worker that reaches it.

The sandbox has no network. An exec that may reach hosts finds an HTTP proxy on its loopback; the runner carries those
connections as streams (`runner.channel`) to this proxy, which knows the exec from the channel and decides.

Reading order: rules (what is allowed), `domain.addresses` (what never is), lease (one exec's allowance), http_head,
http_body and clienthello (what the tool says), proxy (the decision), dial (the one resolution), relay (the bytes),
attempt (the record), service (the thread it all runs on), carrier (between a link and the proxy).
"""
