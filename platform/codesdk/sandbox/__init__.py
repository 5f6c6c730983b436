"""Sandboxes: where tool calls run. The port is `port`; `docker_driver` keeps it on a Docker engine, `fake` in memory.

One exec walks: docker_driver (engine objects, as `spec` says) -> session (the worker's side, joins again what it lost) ->
link (one connection) -> runner (the program inside; see its own reading order) -> back as output chunks and an end.
"""
