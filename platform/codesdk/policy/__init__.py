"""Policy: pure decisions on tool calls, from rules that people can read.

`load_bundle` reads a directory of YAML files; `decide` gives the verdict on one call, `explain` the same with every rule's
part in it, `may_ever_allow` what can be said of a tool before there is a call, `lint` what an author should look at,
`covered_options` which arguments `...` of a rule excludes and lets through.
"""

from __future__ import annotations

from codesdk.policy.bundles.bundle import Bundle, Finding, load_bundle, unreadable_bundle
from codesdk.policy.evaluation.decision import Reachability, decide, explain, may_ever_allow
from codesdk.policy.evaluation.tool_access import AccessLevel, ToolAccess, tool_access
from codesdk.policy.facts import Call, CallFacts, ExampleTool, ToolFacts
from codesdk.policy.faults import PolicyInvalid
from codesdk.policy.linting.covered_options import covered_options
from codesdk.policy.linting.linter import lint
from codesdk.policy.rollout.active_bundles import ActiveBundles, BundleProvider
from codesdk.policy.schema.models import policy_schema

__all__ = [
    "AccessLevel",
    "ActiveBundles",
    "Bundle",
    "BundleProvider",
    "Call",
    "CallFacts",
    "ExampleTool",
    "Finding",
    "PolicyInvalid",
    "Reachability",
    "ToolAccess",
    "ToolFacts",
    "covered_options",
    "decide",
    "explain",
    "lint",
    "load_bundle",
    "may_ever_allow",
    "policy_schema",
    "tool_access",
    "unreadable_bundle",
]
