"""The tables of the audit. See `storage.schema`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, String, Table, Text

from codesdk.storage.metadata import ID, metadata

audit_entries = Table(  # what was done to tenants, keys, quotas, policy and the record itself; nothing removes one
    "audit_entries",
    metadata,
    Column("chain", ID, primary_key=True),  # a tenant's id, or `installation`
    Column("number", BigInteger, primary_key=True),  # dense from 1
    Column("time", String(24), nullable=False),
    Column("act", String(48), nullable=False),  # see eventlog.audit.Act
    Column("actor", String(120), nullable=False),  # a principal's id, or the part of the product that did it
    Column("target", String(200), nullable=False),
    Column("details", Text, nullable=False),  # canonical JSON
    Column("hash", String(71), nullable=False),  # of all of this and the hash before
    sqlite_with_rowid=False,
)

audit_heads = Table(  # the last entry of each chain; its row's lock is the chain's
    "audit_heads",
    metadata,
    Column("chain", ID, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(71), nullable=False),
)
