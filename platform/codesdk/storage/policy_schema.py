"""The tables of policy versions: texts, what was in force when, and how a shadow would have decided."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, String, Table, Text

from codesdk.storage.tables import ID as _ID
from codesdk.storage.tables import metadata

policy_texts = Table(  # the files of bundles, by hash of their rules; immutable
    "policy_texts",
    metadata,
    Column("hash", String(71), primary_key=True),
    Column("sources", Text, nullable=False),  # JSON: name of a file -> its text
)

policy_versions = Table(  # every bundle that a layer has had, by hash of its rules
    "policy_versions",
    metadata,
    Column("layer", _ID, primary_key=True),  # shared, or the tenant's id
    Column("hash", String(71), ForeignKey("policy_texts.hash"), primary_key=True),
    Column("name", String(64), nullable=False),
    Column("made_at", Float, nullable=False),
    Column("made_by", _ID),  # the principal; none if loaded from files
)

policy_pins = Table(  # the version in force instead of the files, and the shadow
    "policy_pins",
    metadata,
    Column("layer", _ID, primary_key=True),
    Column("role", String(8), primary_key=True),  # active, shadow
    Column("hash", String(71), ForeignKey("policy_texts.hash"), nullable=False),
)

policy_changes = Table(  # the history of what was in force; append-only
    "policy_changes",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("layer", _ID, nullable=False),
    Column("action", String(12), nullable=False),  # see policy.version.Change
    Column("hash", String(71)),
    Column("before", String(71)),
    Column("by", _ID),
    Column("at", Float, nullable=False),
    Column("comment", Text, nullable=False),
    Index("ix_policy_changes_layer", "layer", "at"),
)

policy_shadow_counts = Table(  # a shadow's decisions on live calls, compared with those in force
    "policy_shadow_counts",
    metadata,
    Column("layer", _ID, primary_key=True),
    Column("hash", String(71), primary_key=True),
    Column("before", String(8), primary_key=True),
    Column("after", String(8), primary_key=True),  # or error
    Column("rule", String(80), primary_key=True),  # the first rule that decided; empty for the default
    Column("count", BigInteger, nullable=False),
    Column("last_call", _ID, nullable=False),
    Column("last_at", Float, nullable=False),
)
