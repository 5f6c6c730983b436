"""All tables. Times that statements compare are seconds since the epoch. JSON is canonical text.

The tables of policy versions are in `policy_schema`.
"""

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

from codesdk.storage import policy_schema  # noqa: F401 - whoever has the metadata has these tables, too
from codesdk.storage.tables import ID as _ID
from codesdk.storage.tables import metadata as metadata  # noqa: PLC0414 - for who needs the metadata with all tables
from codesdk.storage.tables import where as _where

tenants = Table(
    "tenants",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("name", String(120), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("suspended_at", Float),
    Column("limits", Text, nullable=False, server_default=text("'{}'")),  # JSON: resource -> this tenant's limit
    Column("artifact_bytes", BigInteger, nullable=False, server_default=text("0")),  # sum of its artifacts' sizes
    Column("egress_day", BigInteger, nullable=False, server_default=text("0")),  # days since the epoch
    Column("egress_bytes", BigInteger, nullable=False, server_default=text("0")),  # on that day
    Column("weight", Integer, nullable=False, server_default=text("1")),  # share of a host's calls
    Column("yolo", Boolean, nullable=False, server_default=text("false")),  # its sessions may use this mode
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
    Column("hash", String(71), nullable=False, unique=True),  # of the secret, which is shown once
    Column("created_at", Float, nullable=False),
    Column("revoked_at", Float),
    Column("name", String(120), nullable=False, server_default=text("''")),
    Column("prefix", String(24), nullable=False, server_default=text("''")),  # lets people recognise the secret
    Column("expires_at", Float),
    Column("last_used_at", Float),  # rounded down to the hour
    Index("ix_api_keys_principal", "principal_id"),
)

logins = Table(  # principals that logged in with an issuer's token
    "logins",
    metadata,
    Column("issuer", String(255), primary_key=True),
    Column("subject", String(255), primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("principal_id", _ID, ForeignKey("principals.id"), nullable=False, unique=True),
    Column("session_id", _ID),  # last session opened for it; may be closed or removed
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
    Column("image", String(80), nullable=False),  # image id on the host; fixed when the session opens
    Column("labels", Text, nullable=False),  # JSON object
    Column("priority", String(16), nullable=False, server_default=text("'interactive'")),  # interactive, batch
    Column("parallel_calls", Integer, nullable=False, server_default=text("16")),  # maximum number that run at once
    Column("watch", Boolean, nullable=False, server_default=text("false")),  # whether file changes become events
    Column("seed_artifact", _ID),  # archive with the workspace's initial files
    Column("last_seq", BigInteger, nullable=False, server_default=text("0")),
    Column("log_epoch", String(32), nullable=False),  # changes when a log is restored; cursors carry it
    Column("created_at", Float, nullable=False),
    Column("closed_at", Float),
    Column("closed_reason", Text),
    Column("snapshots", Boolean, nullable=False, server_default=text("false")),  # whether snapshots are taken
    Column("snapshot_artifact", _ID),  # the last snapshot
    Column("snapshot_at", Float),  # when it began, on the database's clock
    Column("opened_from", _ID),  # the session whose last snapshot it started from
    Column("imported_at", Float),  # its log came from an export, without rows of calls
    Column("policy_hash", String(71)),  # of the session's own rules, in policy_texts
    Column("sealed_seq", BigInteger, nullable=False, server_default=text("0")),  # last `seq` in the audit trail
    Column("sealed_hash", String(71), nullable=False, server_default=text("''")),  # of all its events up to sealed_seq
    Column(
        "log_bytes", BigInteger, nullable=False, server_default=text("0")
    ),  # of its events, inputs, results, approvals
    Index("ix_sessions_tenant", "tenant_id", "created_at"),
    Index("ix_sessions_tenant_state", "tenant_id", "state"),
)

removed_sessions = Table(  # sessions that retention removed, so that requests for them get a clear answer
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
    Column("session_id", _ID, ForeignKey("sessions.id"), unique=True),  # none: in the warm pool, or throw-away
    Column("host_id", _ID, ForeignKey("hosts.id"), nullable=False),
    Column("state", String(16), nullable=False),  # see sandbox.store.SandboxState
    Column("tool_uid", Integer, nullable=False),
    Column("image", String(80), nullable=False),  # image id on the host
    Column("profile", Text, nullable=False),  # JSON; sessions claim a pooled sandbox by equal text
    Column("generation", BigInteger),  # of the worker that created it for the pool, or as a copy
    Column("ready_at", Float),  # when its session got it; idle time and lifetime count from here
    Column("active_at", Float),  # when a process that belongs to no call was last seen running
    Column("attestation", Text),  # JSON, read back from engine and kernel
    Column("reason", Text),
    Column("source", String(40)),  # the MCP server that runs in it; session_id is none then
    Column("serves", _ID),  # the session that the server serves; none if shared
    Column("runner", String(64)),  # id of its last runner process; a different one knows no earlier exec
    Column("lives", Integer, nullable=False, server_default=text("0")),  # how many earlier runners were lost
    # a tool uid belongs to one living sandbox per host
    Index("uq_sandboxes_host_uid", "host_id", "tool_uid", unique=True, **_where("state <> 'gone'")),
    Index("ix_sandboxes_host_state", "host_id", "state"),
)

source_changes = Table(  # tools of MCP servers that differ from what was pinned, as a worker last saw them
    "source_changes",
    metadata,
    Column("source", String(40), primary_key=True),
    Column("tool", String(200), primary_key=True),  # the server's own name
    Column("pinned", String(71), nullable=False),  # the accepted hash; the row applies to this one only
    Column("seen", String(71), nullable=False),  # empty: the server no longer has the tool
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
    Column("batch", Boolean, nullable=False, server_default=text("false")),  # runs after the tenant's interactive calls
    Column("held", Boolean, nullable=False, server_default=text("true")),  # queued, but its session may not run it yet
    Column("state", String(28), nullable=False),
    Column("digest", String(71)),  # what an approval binds; set if policy asked
    Column("preparing", _ID),  # the deferred approval, until a worker has read the files or made the dry run
    Column("bound_files", Text),  # JSON: the files that the approval binds
    Column("preview_tries", Integer),  # how many dry runs were started; none if no preview is wanted
    Column("preview", Text),  # JSON: the preview that people saw, to compare with the run
    Column("grant_id", _ID),  # the grant that turned ask into allow, if any
    Column("sources", Text, nullable=False),  # JSON: the evaluations so far
    Column("generation", BigInteger),  # of the worker that claimed it
    Column("behaviour_hash", String(71)),  # of everything that determines what its tool does, at the claim
    Column("classification", String(16)),  # its tool's, at the claim
    Column("life", Integer),  # its sandbox's `lives` at the claim
    Column("doubtful", Boolean, nullable=False, server_default=text("false")),  # lost, and its effect is unknown
    Column("obligations", Text),  # JSON: what policy demanded of the run; set by the claim
    Column("cancel_requested", Boolean, nullable=False, server_default=text("false")),
    Column("result", Text),  # JSON, set with the terminal state
    Column("requested_at", Float, nullable=False),
    Column("queued_at", Float),
    Column("started_at", Float),
    Column("finished_at", Float),
    Index("ix_tool_calls_next", "host_id", "state", "tenant_id", "held", "batch", "queued_at", "id"),
    Index("ix_tool_calls_session", "session_id", "state", "held", "queued_at", "id"),
    Index("ix_tool_calls_tenant_state", "tenant_id", "state"),
    Index("ix_tool_calls_finished", "session_id", "finished_at"),  # when a session became idle
    # a client that resends a call must find it, through any process
    Index(
        "uq_tool_calls_runtime_id",
        "session_id",
        "runtime_tool_call_id",
        unique=True,
        **_where("runtime_tool_call_id IS NOT NULL"),
    ),
    # nearly empty; read at each call to find lost calls with the same input
    Index("ix_tool_calls_doubtful", "session_id", sqlite_where=text("doubtful = 1"), postgresql_where=text("doubtful")),
    # Nearly empty; each worker polls it for its host. Without `state`, SQLite picks ix_tool_calls_next.
    Index("ix_tool_calls_preparing", "host_id", "state", **_where("preparing IS NOT NULL")),
)

turns = Table(  # each tenant's place in the host's fair queue (toolcalls.turn_store)
    "turns",
    metadata,
    Column("host_id", _ID, ForeignKey("hosts.id"), primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("position", Float, nullable=False),  # virtual time: the lowest is served next
    Column("waiting", Boolean, nullable=False),  # whether it may have a call that could start
    Column("stamp", BigInteger, nullable=False),  # counts the changes that set `waiting`
    Index("ix_turns_next", "host_id", "waiting", "position", "tenant_id"),
    Index("ix_turns_last", "host_id", "position"),
    Index("ix_turns_tenant", "tenant_id"),
)

refused_calls = Table(  # number of refused calls per tenant and code (toolcalls.refusals)
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
    Column("shown_target", String(300), nullable=False),  # the part that isn't secret
    Column("types", Text, nullable=False),  # JSON list of patterns
    Column("principal_id", _ID, ForeignKey("principals.id")),  # on whose behalf its tickets answer
    Column("description", String(200), nullable=False),
    Column("secrets", Text, nullable=False),  # JSON list, newest first: sealed, created_at, retires_at
    Column("created_at", Float, nullable=False),
    Column("disabled_at", Float),
    Column("disabled_reason", Text),
    Column("failures", Integer, nullable=False, server_default=text("0")),  # in a row
    Column("not_before", Float, nullable=False, server_default=text("0")),  # no delivery before this time
    Column("turn_at", Float, nullable=False, server_default=text("0")),  # when its last turn began
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
    Column("session_id", _ID, ForeignKey("sessions.id")),  # none: a test, not an event
    Column("seq", BigInteger),
    Column("message", Text, nullable=False),  # JSON, without secrets and one-time links
    Column("ticket_id", _ID, ForeignKey("approval_tickets.id")),
    Column("state", String(16), nullable=False),  # pending, delivered, dead
    Column("created_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("until", Float, nullable=False),  # no tries after this time
    Column("tries", Integer, nullable=False),  # since it was created or replayed
    Column("attempts", Text, nullable=False),  # JSON list of the most recent, oldest first
    Column("replays", Integer, nullable=False, server_default=text("0")),
    Index("ix_webhook_deliveries_due", "endpoint_id", "state", "due_at"),
    Index("ix_webhook_deliveries_session", "session_id"),
    Index("ix_webhook_deliveries_created", "created_at"),
    Index("uq_webhook_deliveries_event", "endpoint_id", "session_id", "seq", "type", unique=True),
)

webhook_cursors = Table(  # up to which `seq` a session's log has been turned into deliveries
    "webhook_cursors",
    metadata,
    Column("session_id", _ID, ForeignKey("sessions.id"), primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

blobs = Table(
    "blobs",
    metadata,
    Column("key", String(80), primary_key=True),  # in the blob store; never reused
    Column("content_hash", String(71), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("digests", LargeBinary),  # SHA-256 of each chunk; none for blobs of older versions
    Column("state", String(16), nullable=False),  # see artifacts.store.BlobState
    Column("held_until", Float, nullable=False),  # not collected before this time, on the database's clock
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

audit_entries = Table(  # audited actions; never removed
    "audit_entries",
    metadata,
    Column("chain", _ID, primary_key=True),  # a tenant's id, or `installation`
    Column("number", BigInteger, primary_key=True),  # dense from 1
    Column("time", String(24), nullable=False),
    Column("act", String(48), nullable=False),  # see eventlog.audit.AuditAction
    Column("actor", String(120), nullable=False),  # a principal's id, or the component that acted
    Column("target", String(200), nullable=False),
    Column("details", Text, nullable=False),  # canonical JSON
    Column("hash", String(71), nullable=False),  # over all other columns and the previous hash
    sqlite_with_rowid=False,
)

audit_heads = Table(  # the last entry of each chain; its row lock serializes appends
    "audit_heads",
    metadata,
    Column("chain", _ID, primary_key=True),
    Column("number", BigInteger, nullable=False),
    Column("hash", String(71), nullable=False),
)

group_members = Table(  # a group exists as long as it has a member
    "group_members",
    metadata,
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("principal_id", _ID, ForeignKey("principals.id"), primary_key=True),
    Column("added_at", Float, nullable=False),
    Index("ix_group_members_principal", "principal_id"),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("tool_call_id", _ID, ForeignKey("tool_calls.id"), nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("session_id", _ID, ForeignKey("sessions.id"), nullable=False),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("state", String(16), nullable=False),  # pending, approved, rejected, expired, cancelled, consumed, voided
    Column("digest", String(71), nullable=False),
    Column("shown", Text, nullable=False),  # JSON: what the approver sees
    Column("expires_at", Float, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("decided_at", Float),
    Column("decided_by", _ID),
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
    Column("id", _ID, primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("session_id", _ID, ForeignKey("sessions.id"), nullable=False),
    Column("approval_id", _ID, ForeignKey("approvals.id"), nullable=False),
    Column("principal_id", _ID, ForeignKey("principals.id"), nullable=False),
    Column("digest", String(71), nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("used_at", Float),
    Column("endpoint_id", _ID),  # the endpoint that received it; ends with it. None: sent to no endpoint
    Column("look_only", Boolean, nullable=False, server_default=text("false")),
    Index("ix_approval_tickets_session", "session_id"),
    Index("ix_approval_tickets_approval", "approval_id"),
)

approval_demands = Table(  # all must be met; none: one approval by anyone with the permission
    "approval_demands",
    metadata,
    Column("approval_id", _ID, ForeignKey("approvals.id"), primary_key=True),
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
    Column("approval_id", _ID, ForeignKey("approvals.id"), primary_key=True),
    Column("principal_id", _ID, ForeignKey("principals.id"), primary_key=True),
    Column("verdict", String(8), nullable=False),  # approve, reject
    Column("comment", Text),
    Column("voted_at", Float, nullable=False),
)

grants = Table(
    "grants",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("tenant_id", _ID, ForeignKey("tenants.id"), nullable=False),
    Column("principal_id", _ID, ForeignKey("principals.id"), nullable=False),  # whose calls
    Column("session_id", _ID, ForeignKey("sessions.id")),  # none: any session of that principal
    Column("approval_id", _ID, nullable=False),  # the approval whose vote created it
    Column("tool", String(64), nullable=False),
    Column("rules", Text, nullable=False),  # JSON: id of each rule that asked -> its hash
    Column("input_hash", String(71)),  # none: any input that these rules ask about
    Column("schema_hash", String(71), nullable=False),  # of everything that determines what the tool does
    Column("image", String(80), nullable=False),
    Column("profile", String(40), nullable=False, server_default=text("''")),  # its name, for display
    Column("profile_hash", String(71), nullable=False, server_default=text("''")),
    Column("granted_by", _ID, ForeignKey("principals.id"), nullable=False),
    Column("reason", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("max_uses", Integer),  # none: any number
    Column("uses", Integer, nullable=False),
    Column("ended_at", Float),  # revoked or voided
    Column("ended_by", _ID),  # none: voided by a change
    Column("ended_why", Text),
    Index("ix_grants_of", "tenant_id", "principal_id", "tool"),
    Index("ix_grants_tenant", "tenant_id", "created_at"),
    Index("ix_grants_session", "session_id"),
)

approval_feeds = Table(  # one row per tenant, locked while a transaction appends news
    "approval_feeds",
    metadata,
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("epoch", String(32), nullable=False),  # changes when a copy is restored; cursors carry it
    Column("last", BigInteger, nullable=False),
)

approval_news = Table(
    "approval_news",
    metadata,
    Column("tenant_id", _ID, ForeignKey("tenants.id"), primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("approval_id", _ID, ForeignKey("approvals.id"), nullable=False),
    Column("session_id", _ID, ForeignKey("sessions.id"), nullable=False),
    Column("kind", String(16), nullable=False),  # see approvals.news
    Column("by", _ID),
    Column("at", Float, nullable=False),
    Index("ix_approval_news_session", "session_id"),
)

hosts = Table(
    "hosts",
    metadata,
    Column("id", _ID, primary_key=True),
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
    Column("holder", Text, nullable=False, server_default=text("''")),  # JSON: see hosts.holder; empty if unknown
)

source_servers = Table(  # the MCP servers of a host's worker, as last reported; rows of older generations don't count
    "source_servers",
    metadata,
    Column("host_id", _ID, ForeignKey("hosts.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("generation", BigInteger, nullable=False),  # of the worker that wrote it
    Column("source", String(40), nullable=False),
    Column("session_id", _ID),  # the session it serves; none if shared
    Column("tenant_id", _ID),  # likewise
    Column("state", String(16), nullable=False),  # see sources.server_status.ServerState
    Column("since", Float),  # when it was last started, on the worker's clock
    Column("restarts", Integer, nullable=False),
    Column("reason", Text, nullable=False),  # why it last ended
)

call_tallies = Table(  # histogram of call durations per host (toolcalls.statistics); normally written by its worker
    "call_tallies",
    metadata,
    Column("host_id", _ID, ForeignKey("hosts.id"), primary_key=True),
    Column("series", String(16), primary_key=True),  # see toolcalls.statistics.Series
    Column("label", String(48), primary_key=True),  # the call's outcome
    Column("upto_ms", BigInteger, primary_key=True, autoincrement=False),  # the bucket's upper bound; 0: unbounded
    Column("calls", BigInteger, nullable=False),
    Column("seconds", Float, nullable=False),  # sum over all these calls
)

rate_uses = Table(  # calls that count against a rule's rate limit, while in its window
    "rate_uses",
    metadata,
    Column("rule", String(80), primary_key=True),  # the rule's id, with its layer
    Column("owner", _ID, primary_key=True),  # session, principal or tenant
    Column("call_id", _ID, primary_key=True),
    Column("at", Float, nullable=False),
    Index("ix_rate_uses_at", "rule", "owner", "at"),
)
