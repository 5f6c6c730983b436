"""Sandboxes: where tool calls run. `port` is the interface; `docker`, `local` and, in memory, `fake` implement it.

An exec takes this path: docker.driver (the container, built from isolation.spec) -> channel.sandbox (the worker's side;
rejoins after a lost connection) -> channel.connection -> runner (the program inside; it has its own reading order).
"""
