"""Tables for approvals, votes, one-time links, grants and groups. See `storage.schema`."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Index, Integer, String, Table, Text, text

from codesdk.storage.metadata import ID, metadata

group_members = Table(  # a group exists as long as it has a member
    "group_members",
    metadata,
    Column("tenant_id", ID, ForeignKey("tenants.id"), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("principal_id", ID, ForeignKey("principals.id"), primary_key=True),
    Column("added_at", Float, nullable=False),
    Index("ix_group_members_principal", "principal_id"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tool_call_id", ID, ForeignKey("tool_calls.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("session_id", ID, ForeignKey("sessions.id"), nullable=False),
    Column("tenant_id", ID, ForeignKey("tenants.id"), nullable=False),
    Column("state", String(16), nullable=False),  # pending, approved, rejected, expired, cancelled, consumed, voided
    Column("digest", String(71), nullable=False),
    Column("shown", Text, nullable=False),  # JSON: what the approver sees
    Column("expires_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("decided_at", Float),
    Column("decided_by", ID),
    Column("comment", Text),
    Column("not_requester", Boolean, nullable=False, server_default=text("false")),
    Column("grant_offer", Text),  # JSON: the grants that a vote may give in addition
    Column("rules", Text, nullable=False, server_default=text("'[]'")),  # JSON: id of each asking rule -> its hash
    Index("ix_approvals_call", "tool_call_id", "attempt"),
    Index("ix_approvals_state", "tenant_id", "state", "created_at"),
)

approval_tickets = Table(  # each answers one approval once, on behalf of its principal
    "approval_tickets",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tenant_id", ID, ForeignKey("tenants.id"), nullable=False),
    Column("session_id", ID, ForeignKey("sessions.id"), nullable=False),
    Column("approval_id", ID, ForeignKey("approvals.id"), nullable=False),
    Column("principal_id", ID, ForeignKey("principals.id"), nullable=False),
    Column("digest", String(71), nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("used_at", Float),
    Column("endpoint_id", ID),  # the endpoint that received it; ends with it. None: sent to no endpoint
    Column("look_only", Boolean, nullable=False, server_default=text("false")),
    Index("ix_approval_tickets_session", "session_id"),
    Index("ix_approval_tickets_approval", "approval_id"),
)

approval_demands = Table(  # all must be met; none: one approval by anyone with the permission
    "approval_demands",
    metadata,
    Column("approval_id", ID, ForeignKey("approvals.id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("group_name", String(64)),
    Column("quorum", Integer, nullable=False),
    Column("escalate_at", Float),
    Column("escalate_to", String(64)),
    Column("escalated", Boolean, nullable=False, server_default=text("false")),  # whether it was logged
    Index("ix_approval_demands_escalate", "escalated", "escalate_at"),
)

approval_votes = Table(
    "approval_votes",
    metadata,
    Column("approval_id", ID, ForeignKey("approvals.id"), primary_key=True),
    Column("principal_id", ID, ForeignKey("principals.id"), primary_key=True),
    Column("verdict", String(8), nullable=False),  # approve, reject
    Column("comment", Text),
    Column("voted_at", Float, nullable=False),
)

grants = Table(
    "grants",
    metadata,
    Column("id", ID, primary_key=True),
    Column("tenant_id", ID, ForeignKey("tenants.id"), nullable=False),
    Column("principal_id", ID, ForeignKey("principals.id"), nullable=False),  # whose calls
    Column("session_id", ID, ForeignKey("sessions.id")),  # none: any session of that principal
    Column("approval_id", ID, nullable=False),  # the approval whose vote created it
    Column("tool", String(64), nullable=False),
    Column("rules", Text, nullable=False),  # JSON: id of each rule that asked -> its hash
    Column("input_hash", String(71)),  # none: any input that these rules ask about
    Column("schema_hash", String(71), nullable=False),  # of everything that determines what the tool does
    Column("image", String(80), nullable=False),
    Column("profile", String(40), nullable=False, server_default=text("''")),  # its name, for display
    Column("profile_hash", String(71), nullable=False, server_default=text("''")),
    Column("granted_by", ID, ForeignKey("principals.id"), nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("max_uses", Integer),  # none: any number
    Column("uses", Integer, nullable=False),
    Column("ended_at", Float),  # revoked or voided
    Column("ended_by", ID),  # none: voided by a change
    Column("ended_why", Text),
    Index("ix_grants_of", "tenant_id", "principal_id", "tool"),
    Index("ix_grants_tenant", "tenant_id", "created_at"),
    Index("ix_grants_session", "session_id"),
)

approval_feeds = Table(  # one row per tenant, locked while a transaction appends news
    "approval_feeds",
    metadata,
    Column("tenant_id", ID, ForeignKey("tenants.id"), primary_key=True),
    Column("epoch", String(32), nullable=False),  # changes when a copy is restored; cursors carry it
    Column("last", BigInteger, nullable=False),
)

approval_news = Table(
    "approval_news",
    metadata,
    Column("tenant_id", ID, ForeignKey("tenants.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("approval_id", ID, ForeignKey("approvals.id"), nullable=False),
    Column("session_id", ID, ForeignKey("sessions.id"), nullable=False),
    Column("kind", String(16), nullable=False),  # see approvals.news
    Column("by", ID),
    Column("at", Float, nullable=False),
    Index("ix_approval_news_session", "session_id"),
)
