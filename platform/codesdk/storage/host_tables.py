"""Tables for hosts. See `storage.schema`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Integer, String, Table, Text, text

from codesdk.storage.metadata import ID, metadata

hosts = Table(
    "hosts",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", String(120), nullable=False, unique=True),
    Column("generation", BigInteger, nullable=False),  # raised by each worker that takes over the host
    Column("heartbeat", BigInteger, nullable=False),  # a counter; observers measure its age on their own clock
    Column("images", Text, nullable=False),  # JSON: image name -> image id on that host
    Column("registered_at", Float, nullable=False),
    Column("engine", String(400), nullable=False, server_default=text("''")),  # the engine's own id
    Column("state", String(16), nullable=False, server_default=text("'active'")),  # see hosts.host.HostState
    Column("labels", Text, nullable=False, server_default=text("'{}'")),  # JSON object
    # The operator's limits for all sessions together; 0: no limit.
    Column("memory_bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("millicpus", BigInteger, nullable=False, server_default=text("0")),
    Column("most_sessions", Integer, nullable=False, server_default=text("0")),
    Column("left_at", Float),  # when its worker last shut down cleanly; none while one runs
    Column("heard_at", Float),  # time of its newest heartbeat on the database's clock; `hosts.watch` doesn't use it
    Column(
        "holder", Text, nullable=False, server_default=text("''")
    ),  # JSON: see hosts.holder; of whom it is not known: empty
)

source_servers = Table(  # the MCP servers of a host's worker, as last reported; rows of older generations don't count
    "source_servers",
    metadata,
    Column("host_id", ID, ForeignKey("hosts.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("generation", BigInteger, nullable=False),  # of the worker that wrote it
    Column("source", String(40), nullable=False),
    Column("session_id", ID),  # the session it serves; none if shared
    Column("tenant_id", ID),  # likewise
    Column("state", String(16), nullable=False),  # see sources.server_status.ServerState
    Column("since", Float),  # when it was last started, on the worker's clock
    Column("restarts", Integer, nullable=False),
    Column("reason", Text, nullable=False),  # why it last ended
)

call_tallies = Table(  # histogram of call durations per host (toolcalls.statistics); normally written by its worker
    "call_tallies",
    metadata,
    Column("host_id", ID, ForeignKey("hosts.id"), primary_key=True),
    Column("series", String(16), primary_key=True),  # see toolcalls.statistics.Series
    Column("label", String(48), primary_key=True),  # the call's outcome
    Column("upto_ms", BigInteger, primary_key=True, autoincrement=False),  # the bucket's upper bound; 0: unbounded
    Column("calls", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),  # sum over all these calls
)
