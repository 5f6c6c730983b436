"""Policy: pure decisions on tool calls, from rules that people can read.

`load_bundle` reads a directory of YAML files; `decide` gives the verdict on one call, `explain` the same with every rule's
part in it, `may_ever_allow` what can be said of a tool before there is a call, `lint` what an author should look at.
"""

from __future__ import annotations

from codesdk.policy.active import ActiveBundles, Bundles, OneBundle
from codesdk.policy.bundle import Bundle, Finding, load_bundle, unreadable_bundle
from codesdk.policy.decide import Possibility, decide, explain, may_ever_allow
from codesdk.policy.facts import Call, CallFacts, NamedTool, ToolFacts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.language import policy_schema
from codesdk.policy.lint import lint
from codesdk.policy.standing import ToolStanding, Word, standing

__all__ = [
    "ActiveBundles",
    "Bundle",
    "Bundles",
    "Call",
    "CallFacts",
    "Finding",
    "NamedTool",
    "OneBundle",
    "PolicyInvalid",
    "Possibility",
    "ToolFacts",
    "ToolStanding",
    "Word",
    "decide",
    "explain",
    "lint",
    "load_bundle",
    "may_ever_allow",
    "policy_schema",
    "standing",
    "unreadable_bundle",
]
