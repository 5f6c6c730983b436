"""All tables. Times that statements compare are seconds since the epoch; JSON is canonical text."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    text,
)

from codesdk.storage.approval_tables import (
    approval_demands,
    approval_feeds,
    approval_news,
    approval_tickets,
    approval_votes,
    approvals,
    grants,
    group_members,
)
from codesdk.storage.host_tables import call_tallies, hosts, source_servers
from codesdk.storage.metadata import ID as _ID
from codesdk.storage.metadata import metadata
from codesdk.storage.policy_tables import (
    policy_changes,
    policy_pins,
    policy_shadow_counts,
    policy_texts,
    policy_versions,
    rate_uses,
)

# What is defined elsewhere and found here, as all tables are.
__all__ = [
    "approval_demands",
    "approval_feeds",
    "approval_news",
    "approval_tickets",
    "approval_votes",
    "approvals",
    "audit_entries",
    "audit_heads",
    "call_tallies",
    "grants",
    "group_members",
    "hosts",
    "metadata",
    "policy_changes",
    "policy_pins",
    "policy_shadow_counts",
    "policy_texts",
    "policy_versions",
    "rate_uses",
    "source_servers",
]

tenants = Table(
    "tenants",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(120), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("suspended_at", Float),
    Column("limits", Text, nullable=False, server_default=text("'{}'")),  # JSON: resource -> its own limit
    Column("artifact_bytes", BigInteger, nullable=False, server_default=text("0")),  # sum of its artifacts' sizes
    Column("egress_day", BigInteger, nullable=False, server_default=text("0")),  # days since the epoch
    Column("egress_bytes", BigInteger, nullable=False, server_default=text("0")),  # on that day
    Column("weight", Integer, nullable=False, server_default=text("1")),  # calls it gets where others get one
    Column("yolo", Boolean, nullable=False, server_default=text("false")),  # its sessions may have that mode
)

principals = Table(
    "principals",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("name", String(120), nullable=False),
    Column("roles", Text, nullable=False),  # JSON list
    Column("created_at", Float, nullable=False),
    Column("kind", String(16), nullable=False, server_default=text("'person'")),  # person, program
    Column("reach", String(16), nullable=False, server_default=text("'tenant'")),  # tenant, instance
    Column("disabled_at", Float),
    Index("ix_principals_tenant", "tenant_id", "created_at"),
)

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("principal_id", _ID, ForeignKey("principals.id"), nullable=False),
    Column("hash", String(71), nullable=False, unique=True),  # of the secret; the secret itself is shown once
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
    Column("name", String(120), nullable=False, server_default=text("''")),
    Column("prefix", String(24), nullable=False, server_default=text("''")),  # by which people recognise the secret
    Column("expires_at", Float),
    Column("last_used_at", Float),  # the beginning of the hour
    Index("ix_api_keys_principal", "principal_id"),
)

logins = Table(  # who came with a token of an issuer
    "logins",
    metadata,
    Column("issuer", String(255), primary_key=True),
    Column("subject", String(255), primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("principal_id", _ID, ForeignKey("principals.id"), nullable=False, unique=True),
    Column("session_id", _ID),  # opened for it last; it may be closed, or be removed
    Column("created_at", Float, nullable=False),
)

sessions = Table(
    "sessions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("principal_id", _ID, ForeignKey("principals.id"), nullable=False),
    Column("host_id", _ID, ForeignKey("hosts.id"), nullable=False),
    Column("state", String(16), nullable=False),  # open, closed
    Column("runtime", String(40), nullable=False),
    Column("permission_mode", String(8), nullable=False),
    Column("profile", Text, nullable=False),  # JSON of the profile in force
    Column("image", String(80), nullable=False),  # image id on the host, fixed for the session's life
    Column("labels", Text, nullable=False),  # JSON object
    Column("priority", String(16), nullable=False, server_default=text("'interactive'")),  # interactive, batch
    Column("parallel_calls", Integer, nullable=False, server_default=text("16")),  # that run at once, at most
    Column("watch", Boolean, nullable=False, server_default=text("false")),  # changed files become events
    Column("seed_artifact", _ID),  # archive that the workspace starts from
    Column("last_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("log_epoch", String(32), nullable=False),  # a restored log gets another; cursors carry it
    Column("created_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("closed_reason", Text),
    Column("snapshots", Boolean, nullable=False, server_default=text("false")),  # its workspace is kept as it goes
    Column("snapshot_artifact", _ID),  # the last that was taken
    Column("snapshot_at", Float),  # on the database's clock, before it began
    Column("opened_from", _ID),  # the session whose last snapshot its workspace starts from
    Column("imported_at", Float),  # its log came from an export: no rows of calls stand beside it
    Column("policy_hash", String(71)),  # of the rules that it was opened with, in policy_texts
    Column(
        "sealed_seq", BigInteger, nullable=False, server_default=text("0")
    ),  # its log is in the audit's chain so far
    Column("sealed_hash", String(71), nullable=False, server_default=text("''")),  # of all its events up to there
    Index("ix_sessions_tenant", "tenant_id", "created_at"),
    Index("ix_sessions_tenant_state", "tenant_id", "state"),
)

removed_sessions = Table(  # what retention took, so that whoever asks is told so
    "removed_sessions",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("closed_at", Float, nullable=False),
    Column("removed_at", Float, nullable=False),
    Column("reason", Text, nullable=False),
)

session_tokens = Table(
    "session_tokens",
    metadata,
    Column("hash", String(71), primary_key=True),
    Column("session_id", _ID, ForeignKey("sessions.id"), nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("revoked_at", Float),
)

events = Table(
    "events",
    metadata,
    Column("session_id", _ID, ForeignKey("sessions.id"), primary_key=True),
    Column("seq", BigInteger, primary_key=True),
    Column("time", String(24), nullable=False),
    Column("type", String(48), nullable=False),
    Column("body", Text, nullable=False),  # JSON: the envelope without seq, time and type
    sqlite_with_rowid=False,
)

sandboxes = Table(
    "sandboxes",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("session_id", _ID, ForeignKey("sessions.id"), unique=True),  # none while it is the warm pool's, or a copy's
    Column("host_id", _ID, ForeignKey("hosts.id"), nullable=False),
    Column("state", String(16), nullable=False),  # see sandbox.store.SandboxState
    Column("tool_uid", Integer, nullable=False),
    Column("image", String(80), nullable=False),  # image id on the host
    Column("profile", Text, nullable=False),  # JSON; a pooled sandbox is claimed by a session of the same text
    Column("generation", BigInteger),  # of the worker that made it for its pool, or as a copy
    Column("ready_at", Float),  # when its session got it: idle and absolute lifetime count from here
    Column("active_at", Float),  # when something was last seen to run in it that no call waits for
    Column("attestation", Text),  # JSON, read back from engine and kernel
    Column("reason", Text),
    Column("source", String(40)),  # the MCP server that runs in it; then session_id is none
    Column("serves", _ID),  # the session whose calls that server gets; none where it is shared
    Column("runner", String(64)),  # which run of its runner was there last: another one knows no earlier exec
    Column("lives", Integer, nullable=False, server_default=text("0")),  # how many runners before this one were lost
    Index(
        "uq_sandboxes_host_uid",  # a tool uid is one sandbox's on its host for as long as that sandbox lives
        "host_id",
        "tool_uid",
        unique=True,
        sqlite_where=text("state <> 'gone'"),
        postgresql_where=text("state <> 'gone'"),
    ),
    Index("ix_sandboxes_host_state", "host_id", "state"),
)

source_changes = Table(  # tools of MCP servers that are not any more what was accepted, as a worker saw them last
    "source_changes",
    metadata,
    Column("source", String(40), primary_key=True),
    Column("tool", String(200), primary_key=True),  # the server's own name
    Column("pinned", String(71), nullable=False),  # the hash that was accepted; the row says nothing of another
    Column("seen", String(71), nullable=False),  # empty: the server has it no more
    Column("at", Float, nullable=False),
)

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("attempt", Integer, nullable=False),
    Column("session_id", _ID, ForeignKey("sessions.id"), nullable=False),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("host_id", _ID, ForeignKey("hosts.id"), nullable=False),
    Column("runtime_tool_call_id", String(200)),
    Column("name", String(64), nullable=False),
    Column("input", Text, nullable=False),  # canonical JSON
    Column("input_hash", String(71), nullable=False),
    Column("schema_hash", String(71), nullable=False),
    Column("serial", Boolean, nullable=False),  # one at a time in its workspace
    Column(
        "batch", Boolean, nullable=False, server_default=text("false")
    ),  # lets the tenant's interactive ones go first
    Column("held", Boolean, nullable=False, server_default=text("true")),  # queued, and its session may not run it yet
    Column("state", String(28), nullable=False),
    Column("digest", String(71)),  # what an approval binds, set where policy asked
    Column("preparing", _ID),  # the approval that is asked for when a worker has looked at named files
    Column("bound_files", Text),  # JSON: what the approval binds of them
    Column("preview_tries", Integer),  # how often a preview was begun; none where none is wanted
    Column("preview", Text),  # JSON: what people were shown of it, as it is compared with the run
    Column("grant_id", _ID),  # what turned policy's ask into an allow, where something did
    Column("sources", Text, nullable=False),  # JSON: the voices so far
    Column("generation", BigInteger),  # of the worker that claimed it
    Column("behaviour_hash", String(71)),  # all that decides what its tool did, as the claim saw it
    Column("classification", String(16)),  # of its tool, as the claim saw it
    Column("life", Integer),  # its sandbox's `lives` at the claim
    Column(
        "doubtful", Boolean, nullable=False, server_default=text("false")
    ),  # lost; whether it took effect is unknown
    Column("obligations", Text),  # JSON: what policy demanded of the run, set by the claim
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("result", Text),  # JSON, set with the terminal state
    Column("requested_at", Float, nullable=False),
    Column("queued_at", Float),
    Column("started_at", Float),
    Column("finished_at", Float),
    Index("ix_tool_calls_next", "host_id", "state", "tenant_id", "held", "batch", "queued_at", "id"),
    Index("ix_tool_calls_session", "session_id", "state", "held", "queued_at", "id"),
    Index("ix_tool_calls_tenant_state", "tenant_id", "state"),
    Index("ix_tool_calls_finished", "session_id", "finished_at"),  # since when a session is idle
    Index(
        "uq_tool_calls_runtime_id",  # a client that sends its call again must find it, whichever process it comes to
        "session_id",
        "runtime_tool_call_id",
        unique=True,
        sqlite_where=text("runtime_tool_call_id IS NOT NULL"),
        postgresql_where=text("runtime_tool_call_id IS NOT NULL"),
    ),
    Index(
        "ix_tool_calls_doubtful",  # nearly empty: whether the same call is asked about is looked up at each
        "session_id",
        sqlite_where=text("doubtful = 1"),
        postgresql_where=text("doubtful"),
    ),
    Index(
        "ix_tool_calls_preparing",  # nearly empty: a worker asks for those of its host at each look
        "host_id",
        "state",  # some ended before they were looked at; and without it SQLite takes ix_tool_calls_next
        sqlite_where=text("preparing IS NOT NULL"),
        postgresql_where=text("preparing IS NOT NULL"),
    ),
)

turns = Table(  # a tenant's place in the order in which a host serves (toolcalls.turn_store)
    "turns",
    metadata,
    Column("host_id", _ID, ForeignKey("hosts.id"), primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("position", Float, nullable=False),  # virtual time: the lowest is served next
    Column("waiting", Boolean, nullable=False),  # it may have a call that could start
    Column("stamp", BigInteger, nullable=False),  # counts what set `waiting`
    Index("ix_turns_next", "host_id", "waiting", "position", "tenant_id"),
    Index("ix_turns_last", "host_id", "position"),
    Index("ix_turns_tenant", "tenant_id"),
)

refused_calls = Table(  # of each tenant, by the code that they were told (toolcalls.refusals)
    "refused_calls",
    metadata,
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("code", String(32), primary_key=True),
    Column("calls", BigInteger, nullable=False),
)

webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("kind", String(16), nullable=False),  # webhook, chat, mail
    Column("target", Text, nullable=False),  # sealed
    Column("shown_target", String(300), nullable=False),  # what of it is no secret
    Column("types", Text, nullable=False),  # JSON list of patterns
    Column("principal_id", _ID, ForeignKey("principals.id")),  # as whom its tickets answer
    Column("description", String(200), nullable=False),
    Column("secrets", Text, nullable=False),  # JSON list, newest first: sealed, created_at, retires_at
    Column("created_at", Float, nullable=False),
    Column("disabled_at", Float),
    Column("disabled_reason", Text),
    Column("failures", Integer, nullable=False, server_default=text("0")),  # in a row
    Column("not_before", Float, nullable=False, server_default=text("0")),  # rests until then
    Column("turn_at", Float, nullable=False, server_default=text("0")),  # its last turn began
    Column("lease_until", Float, nullable=False, server_default=text("0")),
    Column("lease_holder", String(64)),
    Index("ix_webhook_endpoints_tenant", "tenant_id", "created_at"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("endpoint_id", _ID, ForeignKey("webhook_endpoints.id"), nullable=False),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("type", String(48), nullable=False),
    Column("session_id", _ID, ForeignKey("sessions.id")),  # none: no event, a test
    Column("seq", BigInteger),
    Column("message", Text, nullable=False),  # JSON, without what opens anything
    Column("ticket_id", _ID, ForeignKey("approval_tickets.id")),
    Column("state", String(16), nullable=False),  # pending, delivered, dead
    Column("created_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("until", Float, nullable=False),  # not tried again after it
    Column("tries", Integer, nullable=False),  # since it was made, or replayed
    Column("attempts", Text, nullable=False),  # JSON list, oldest first: the last of them
    Column("replays", Integer, nullable=False, server_default=text("0")),
    Index("ix_webhook_deliveries_due", "endpoint_id", "state", "due_at"),
    Index("ix_webhook_deliveries_session", "session_id"),
    Index("ix_webhook_deliveries_created", "created_at"),
    Index("uq_webhook_deliveries_event", "endpoint_id", "session_id", "seq", "type", unique=True),
)

webhook_cursors = Table(  # how far each session's log has been made into deliveries
    "webhook_cursors",
    metadata,
    Column("session_id", _ID, ForeignKey("sessions.id"), primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("key", String(80), primary_key=True),  # in the blob store; never given twice
    Column("content_hash", String(71), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digests", LargeBinary),  # SHA-256 of each chunk; none for what an older version kept
    Column("state", String(16), nullable=False),  # see artifacts.store.BlobState
    Column("held_until", Float, nullable=False),  # not collected before, on the database's clock
    Index("ix_blobs_hash", "content_hash"),
    Index("ix_blobs_held", "held_until"),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("session_id", _ID, ForeignKey("sessions.id")),
    Column("content_hash", String(71), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("content_type", String(120), nullable=False),
    Column("name", String(255), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("blob_key", String(80), ForeignKey("blobs.key"), nullable=False),
    Index("ix_artifacts_tenant", "tenant_id", "created_at"),
    Index("ix_artifacts_session", "session_id"),
    Index("ix_artifacts_blob", "blob_key"),
)

audit_entries = Table(  # administrative actions; never removed
    "audit_entries",
    metadata,
    Column("chain", _ID, primary_key=True),  # a tenant's id, or `installation`
    Column("number", BigInteger, primary_key=True),  # dense from 1
    Column("time", String(24), nullable=False),
    Column("act", String(48), nullable=False),  # see eventlog.audit.AuditAction
    Column("actor", String(120), nullable=False),  # a principal's id, or the part of the product that did it
    Column("target", String(200), nullable=False),
    Column("details", Text, nullable=False),  # canonical JSON
    Column("hash", String(71), nullable=False),  # of all of this and the hash before
    sqlite_with_rowid=False,
)

audit_heads = Table(  # the last entry of each chain; its row lock guards the chain
    "audit_heads",
    metadata,
    Column("chain", _ID, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(71), nullable=False),
)
