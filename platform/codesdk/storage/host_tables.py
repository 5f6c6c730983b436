"""The table of hosts. See `storage.schema`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Integer, String, Table, Text, text

from codesdk.storage.metadata import ID, metadata

hosts = Table(
    "hosts",
    metadata,
    Column("id", ID, primary_key=True),
    Column("name", String(120), nullable=False, unique=True),
    Column("generation", BigInteger, nullable=False),  # raised by each worker that takes the host over
    Column("heartbeat", BigInteger, nullable=False),  # counts up; observers judge it on their own clock
    Column("images", Text, nullable=False),  # JSON: image name -> image id on that host
    Column("registered_at", Float, nullable=False),
    Column("engine", String(400), nullable=False, server_default=text("''")),  # the engine's own id
    Column("state", String(16), nullable=False, server_default=text("'active'")),  # see hosts.host.HostState
    Column("labels", Text, nullable=False, server_default=text("'{}'")),  # JSON object
    # What the operator says that its sessions may take together; 0: no limit.
    Column("memory_bytes", BigInteger, nullable=False, server_default=text("0")),
    Column("millicpus", BigInteger, nullable=False, server_default=text("0")),
    Column("most_sessions", Integer, nullable=False, server_default=text("0")),
    Column("left_at", Float),  # its worker was stopped in order, and no other has come
)
