"""Policy decisions: effect, matching rules, approval requirements and obligations."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializationInfo, model_serializer, model_validator

from codesdk.domain.model import FrozenModel
from codesdk.domain.network.hostnames import HostPattern, drop_covered, intersect_all


class Effect(StrEnum):
    """A rule's verdict. The strictest of all matching rules wins (`allow` < `ask` < `deny`)."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask, 2 for deny."""
        return ("allow", "ask", "deny").index(self.value)


class Classification(StrEnum):
    """The kind of harm that a tool can do, from its manifest."""

    READ_ONLY = "read-only"
    WRITE = "write"
    NETWORK = "network"
    DANGEROUS = "dangerous"


PREVIEWABLE = frozenset({Classification.WRITE, Classification.DANGEROUS})
"""Tools that a dry run can preview. Network tools can't be tried in a sandbox without a network."""


class PermissionMode(StrEnum):
    """Permission mode: when a session asks for approval (contract 001)."""

    ASK = "ask"
    AUTO = "auto"
    YOLO = "yolo"


class Speaker(StrEnum):
    """Who evaluated a call (contract 000, `ToolPolicyEvaluation.source`)."""

    RUNTIME = "runtime"
    CODESDK = "codesdk"
    USER = "user"


GroupName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
"""Name of a tenant's group of principals."""


class Escalation(FrozenModel):
    """Further approvers, after a delay."""

    after_s: int = Field(ge=1, le=7 * 86400)
    """Delay in seconds, from the request."""
    to: GroupName
    """The group whose members may then vote, too."""


class Demand(FrozenModel):
    """One approval requirement: how many approvers, from which group."""

    group: GroupName | None = None
    """The approvers' group. None: anyone in the tenant who may approve."""
    quorum: int = Field(default=1, ge=1, le=10)
    """Number of different principals that must approve. Above 1, all must be people."""
    escalation: Escalation | None = None
    """Further approvers, after a delay."""


class ApprovalSpec(FrozenModel):
    """What an `ask` requires. Several asks combine to a specification that satisfies all of them."""

    timeout_s: int = Field(default=600, ge=1, le=7 * 86400)
    """Seconds until the approval expires."""
    demands: tuple[Demand, ...] = ()
    """All must be met; a vote counts in each one that the voter fits. Empty: one approval by anyone permitted."""
    not_requester: bool = False
    """The session's own principal may not vote, with any key, and neither may a program."""
    preview: bool = False
    """Try the call in a copy of the workspace first, and show approvers its effects."""


class GrantKind(StrEnum):
    """The scope of an approval."""

    ONCE = "once"
    """Only the call that was shown."""
    SESSION = "session"
    """Calls of the same kind, while the session is open."""
    UNTIL = "until"
    """Calls of the same kind, in any session of the same principal, until a given time."""


class GrantOffer(FrozenModel):
    """What an approver may grant beyond the one call. Several asks combine to what all of them offer."""

    offer: tuple[GrantKind, ...] = (GrantKind.ONCE,)
    max_ttl_s: int = Field(default=8 * 3600, ge=1, le=30 * 86400)
    """Maximum lifetime of a grant, in seconds."""
    max_uses: int | None = Field(default=None, ge=1, le=100_000)
    """Maximum number of calls that a grant covers. None: unlimited."""


class SandboxBounds(FrozenModel):
    """Limits for one call, with the names of the profile's fields. None keeps the profile's value.

    Contains only limits that apply to one call in a running sandbox; the other fields of a profile apply to its
    container.
    """

    memory_bytes: int | None = Field(default=None, ge=32 * 1024 * 1024)
    """Memory per process of the call. All processes together are limited by the sandbox."""
    pids: int | None = Field(default=None, ge=80)
    """Processes and threads of the whole sandbox, including its own 55, above which this call can't start more."""
    open_files: int | None = Field(default=None, ge=64)
    file_bytes: int | None = Field(default=None, ge=1)
    keep_output_bytes: int | None = Field(default=None, ge=0)
    show_output_bytes: int | None = Field(default=None, ge=256)
    max_read_bytes: int | None = Field(default=None, ge=1024)
    egress: Annotated[tuple[HostPattern, ...], AfterValidator(drop_covered)] | None = None
    """The subset of the profile's hosts that the call may reach. Empty: none."""


class RateScope(StrEnum):
    """Whose calls a rate limit counts together."""

    SESSION = "session"
    PRINCIPAL = "principal"
    """All sessions of the principal."""
    TENANT = "tenant"


class Rate(FrozenModel):
    """A rate limit: at most so many calls in any window of that length."""

    calls: int = Field(ge=1, le=10_000)
    per: int = Field(ge=1, le=7 * 86400)
    """Length of the window in seconds."""
    by: RateScope = RateScope.SESSION


class RuleRate(FrozenModel):
    """The rate limit of one rule."""

    rule: str
    rate: Rate


class RedactedKind(StrEnum):
    """Kinds of values that can be redacted by name. `codesdk.domain.redaction` has the patterns."""

    EMAIL = "email"
    CREDIT_CARD = "credit-card"
    AWS_KEY = "aws-key"
    PRIVATE_KEY = "private-key"


REDACTED = "[redacted]"
"""Replaces redacted text."""
UNREDACTED = {"in_full": True}
"""Serialization context that keeps the text to search for. All other dumps mask it, because they may be shown."""


class Redaction(FrozenModel):
    """One redaction of a call's result. Exactly one field is set."""

    kind: RedactedKind | None = None
    literal: str | None = Field(default=None, min_length=1, max_length=1000)
    """This text."""
    pattern: str | None = Field(default=None, min_length=1, max_length=1000)
    """Matches of this regular expression (RE2)."""
    pointer: str | None = Field(default=None, pattern=r"^(/([^~/]|~[01])*)+$", max_length=1000)
    """JSON pointer to a value in the structured result."""

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Redaction:
        if sum(value is not None for _, value in self) != 1:
            raise ValueError("a redaction has one of `kind`, `literal`, `pattern` and `pointer`")
        return self

    @model_serializer
    def _serialize_masked(self, info: SerializationInfo) -> dict[str, str]:
        hidden = () if (info.context or {}).get("in_full") else ("literal", "pattern")
        return {name: REDACTED if name in hidden else str(value) for name, value in self if value is not None}


class Obligations(FrozenModel):
    """Restrictions on how a call runs. Several combine to the tightest."""

    timeout_s: float | None = Field(default=None, gt=0)
    """Maximum wall time of the run, in seconds."""
    sandbox: SandboxBounds = SandboxBounds()
    rate: Rate | None = None
    """The rate limit of this rule. Checked when the call arrives, so it isn't combined."""
    redactions: tuple[Redaction, ...] = ()
    """Redactions of the result. Several rules' redactions all apply."""


def combine_obligations(all_of: Iterable[Obligations]) -> Obligations:
    """Return obligations that satisfy all of the given ones."""
    timeout_s: float | None = None
    bounds: dict[str, Any] = {}
    redactions: dict[Redaction, None] = {}
    for item in all_of:
        redactions |= dict.fromkeys(item.redactions)
        if item.timeout_s is not None:
            timeout_s = item.timeout_s if timeout_s is None else min(timeout_s, item.timeout_s)
        for name, value in item.sandbox.model_dump(exclude_none=True).items():
            known = bounds.get(name)
            combine = intersect_all if name == "egress" else min
            bounds[name] = value if known is None else combine(known, value)
    return Obligations(timeout_s=timeout_s, sandbox=SandboxBounds(**bounds), redactions=tuple(redactions))


class RuleTrace(FrozenModel):
    """One rule's part in a decision, for `explain`."""

    rule: str
    effect: Effect
    matched: bool
    why: str = ""
    """Why it did not match, or what went wrong. Safe to show to the agent's user."""
    error: bool = False
    """The rule could not be evaluated: an allow then doesn't match, an ask or deny does."""


class CommandCause(FrozenModel):
    """The command of a call because of which policy asks."""

    command: tuple[str, ...]
    """Its words, without quotes."""
    words: tuple[int, ...]
    """Indexes of those that decided: what a rule names, an unsafe argument, or an unknown one."""


class Decision(FrozenModel):
    """The verdict of one bundle on one call."""

    effect: Effect
    rules: tuple[str, ...]
    """Ids of the matching rules of the winning effect. Empty if the default decided."""
    rule_hashes: dict[str, str] = {}
    """Hash of each of `rules`. A changed hash voids what was approved under the rule."""
    reason: str
    """One sentence for the agent and its user."""
    bundle_hash: str
    """`sha256:` of the bundle that decided."""
    approval: ApprovalSpec | None = None
    """Set if and only if `effect` is ask."""
    grant: GrantOffer | None = None
    """What an approver may grant beyond this call. None: nothing."""
    obligations: Obligations = Obligations()
    rates: tuple[RuleRate, ...] = ()
    """Rate limits of the rules that allowed the call. Each is counted separately."""
    trace: tuple[RuleTrace, ...] = ()
    doubt: str | None = None
    """The earlier lost calls with the same input, if it asks because of them."""
    cause: CommandCause | None = None
    """The command that `reason` is about. None if it is about the whole call."""


class Evaluation(FrozenModel):
    """One evaluation in the history of a call (contract 000, `ToolPolicyEvaluation`)."""

    source: Speaker
    """Who evaluated it: policy (`codesdk`), a person (`user`) or the runtime."""
    result: Effect
    """The verdict."""
    rule: str | None = None
    """The first rule that policy names; missing if the default decided."""


class PolicySnapshot(FrozenModel):
    """The evaluations that led to the final decision (contract 000, `ToolPolicySnapshot`)."""

    permission_mode: PermissionMode | None = None
    """The session's permission mode."""
    decision: Literal["allow", "deny"]
    """The final decision."""
    sources: tuple[Evaluation, ...]
    """The evaluations, in order."""
