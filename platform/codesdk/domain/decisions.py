"""Policy decisions: effect, matching rules, approval requirements and obligations."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, SerializationInfo, model_serializer, model_validator

from codesdk.domain.model import FrozenModel
from codesdk.domain.network.hostnames import HostPattern, drop_covered, intersect_all


class Effect(StrEnum):
    """What a rule says; the strictest of all matching rules wins (`allow` < `ask` < `deny`)."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"

    @property
    def strictness(self) -> int:
        """0 for allow, 1 for ask, 2 for deny."""
        return ("allow", "ask", "deny").index(self.value)


class Classification(StrEnum):
    """What kind of harm a tool can do, from its manifest."""

    READ_ONLY = "read-only"
    WRITE = "write"
    NETWORK = "network"
    DANGEROUS = "dangerous"


PREVIEWABLE = frozenset({Classification.WRITE, Classification.DANGEROUS})
"""What a tool that can be tried in a copy of the workspace is: one without a network is no trial of the others."""


class PermissionMode(StrEnum):
    """How eager a session is to ask people (contract 001)."""

    ASK = "ask"
    AUTO = "auto"
    YOLO = "yolo"


class Speaker(StrEnum):
    """Who evaluated a call (contract 000, `ToolPolicyEvaluation.source`)."""

    RUNTIME = "runtime"
    CODESDK = "codesdk"
    USER = "user"


GroupName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
"""Of a group of principals, in a tenant."""


class Escalation(FrozenModel):
    """Others who may answer too, once the first have had their time."""

    after_s: int = Field(ge=1, le=7 * 86400)
    """Seconds from the question."""
    to: GroupName
    """The group whose members then may."""


class Demand(FrozenModel):
    """One condition on the yes of people: so many of them, from there."""

    group: GroupName | None = None
    """None: whoever may approve in the tenant."""
    quorum: int = Field(default=1, ge=1, le=10)
    """Different principals that must say yes; where it is more than one, they must be people."""
    escalation: Escalation | None = None
    """Who else may answer after a time."""


class ApprovalSpec(FrozenModel):
    """What an `ask` needs before it becomes an allow. Several asks combine to one that satisfies each of them."""

    timeout_s: int = Field(default=600, ge=1, le=7 * 86400)
    """Seconds until the approval expires."""
    demands: tuple[Demand, ...] = ()
    """All must be met, and one person's yes counts in each that they may answer; none: one yes of anybody."""
    not_requester: bool = False
    """The session's own principal may not answer, with whatever key, nor may a program."""
    preview: bool = False
    """The call is tried in a copy of the workspace first, and people are shown what it did there."""


class GrantKind(StrEnum):
    """How long a yes may hold."""

    ONCE = "once"
    """For the one call that was shown."""
    SESSION = "session"
    """For calls of the same kind, as long as the session is open."""
    UNTIL = "until"
    """For calls of the same kind, also of the same principal's other sessions, until a moment."""


class GrantOffer(FrozenModel):
    """What an approver may give beyond the one call. Several asks combine to what each of them offers."""

    offer: tuple[GrantKind, ...] = (GrantKind.ONCE,)
    max_ttl_s: int = Field(default=8 * 3600, ge=1, le=30 * 86400)
    """Seconds that a grant may live at most."""
    max_uses: int | None = Field(default=None, ge=1, le=100_000)
    """Calls that it may let through at most; None for any number."""


class SandboxBounds(FrozenModel):
    """Bounds on one call, by the names that the sandbox's profile has for them. None leaves what the profile says.

    Only what holds for a single call in a sandbox that runs already: the rest of a profile is its container's.
    """

    memory_bytes: int | None = Field(default=None, ge=32 * 1024 * 1024)
    """What each process of the call may take. All of them together have what the sandbox has."""
    pids: int | None = Field(default=None, ge=80)
    """Processes and threads of the whole sandbox, its own 55 included, beyond which this call starts no more."""
    open_files: int | None = Field(default=None, ge=64)
    file_bytes: int | None = Field(default=None, ge=1)
    keep_output_bytes: int | None = Field(default=None, ge=0)
    show_output_bytes: int | None = Field(default=None, ge=256)
    max_read_bytes: int | None = Field(default=None, ge=1024)
    egress: Annotated[tuple[HostPattern, ...], AfterValidator(drop_covered)] | None = None
    """Hosts that are left of those of the profile; empty for none."""


class RateScope(StrEnum):
    """Whose calls are counted together."""

    SESSION = "session"
    PRINCIPAL = "principal"
    """All sessions of it."""
    TENANT = "tenant"


class Rate(FrozenModel):
    """So many calls in any window of that length."""

    calls: int = Field(ge=1, le=10_000)
    per: int = Field(ge=1, le=7 * 86400)
    """Seconds."""
    by: RateScope = RateScope.SESSION


class RuleRate(FrozenModel):
    """The rate that one rule lets its calls through at."""

    rule: str
    rate: Rate


class RedactedKind(StrEnum):
    """What can be taken out by its name; `codesdk.domain.redaction` has the patterns."""

    EMAIL = "email"
    CREDIT_CARD = "credit-card"
    AWS_KEY = "aws-key"
    PRIVATE_KEY = "private-key"


REDACTED = "[redacted]"
"""What stands where something was taken out."""
UNREDACTED = {"in_full": True}
"""Context of a dump that must keep what is looked for; any other dump may be shown, so it has the mark instead."""


class Redaction(FrozenModel):
    """One thing that nobody gets to see of a call's result. Exactly one of the fields is set."""

    kind: RedactedKind | None = None
    literal: str | None = Field(default=None, min_length=1, max_length=1000)
    """This text."""
    pattern: str | None = Field(default=None, min_length=1, max_length=1000)
    """What this regular expression (RE2) matches."""
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
    """What must hold if the call runs. Obligations only tighten; several combine to the tightest."""

    timeout_s: float | None = Field(default=None, gt=0)
    """Upper bound on the wall time of the run, seconds."""
    sandbox: SandboxBounds = SandboxBounds()
    rate: Rate | None = None
    """Of the one rule; it is kept when the call comes, so it is no part of what several rules combine to."""
    redactions: tuple[Redaction, ...] = ()
    """What is taken out of the result before anybody gets it; of several rules, all of them."""


def combine_obligations(all_of: Iterable[Obligations]) -> Obligations:
    """One that keeps every one of them."""
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
    """What did not match, or what went wrong; safe to show to the agent's user."""
    error: bool = False
    """The rule could not be evaluated: an allow then does not match, an ask or deny does."""


class Decision(FrozenModel):
    """The verdict of one bundle on one call."""

    effect: Effect
    rules: tuple[str, ...]
    """Ids of the matching rules of the winning effect; empty where the default decided."""
    rule_hashes: dict[str, str] = {}
    """What each of `rules` says, as a hash: a change of one of them voids what was approved under it."""
    reason: str
    """One sentence for the agent and its user."""
    bundle_hash: str
    """`sha256:` of the bundle that decided."""
    approval: ApprovalSpec | None = None
    """Set exactly where `effect` is ask."""
    grant: GrantOffer | None = None
    """What an approver may give beyond this call; None where they may not."""
    obligations: Obligations = Obligations()
    rates: tuple[RuleRate, ...] = ()
    """Of the rules that let the call through; each is counted by itself."""
    trace: tuple[RuleTrace, ...] = ()
    doubt: str | None = None
    """The same calls before this one of which nobody knows whether they took effect, where it asks because of them."""


class Evaluation(FrozenModel):
    """One voice in the history of a call (contract 000, `ToolPolicyEvaluation`)."""

    source: Speaker
    """Who speaks: policy (`codesdk`), a person (`user`), or the runtime itself."""
    result: Effect
    """What they say."""
    rule: str | None = None
    """The first rule that policy named; missing where the default decided."""


class PolicySnapshot(FrozenModel):
    """The voices that led to the terminal decision (contract 000, `ToolPolicySnapshot`)."""

    permission_mode: PermissionMode | None = None
    """How eager the session was to ask people."""
    decision: Literal["allow", "deny"]
    """What came of them."""
    sources: tuple[Evaluation, ...]
    """In the order in which they spoke."""
