"""Network egress: the rules for what an exec may reach, and the proxy in the worker that connects.

A sandbox has no network. An exec with egress finds an HTTP proxy on its loopback; the runner forwards those connections as
streams over its channel to this proxy, which knows the exec from the channel.

Reading order: rules, allowance (one exec's rules and budgets), http_head, http_body and client_hello (parsing), proxy (the
decision), dialer (name resolution and connecting), relay (the bytes), connection_attempt (the record), service (threads and
lifetimes), multiplexer (streams over a sandbox's link).
"""
