"""Profiles: parsed strictly, and only ever tightened."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codesdk.documents.document import read_document
from codesdk.domain.decisions import Obligations, SandboxBounds, combine_obligations
from codesdk.domain.network.hostnames import covers
from codesdk.policy.schema.obligations import UNSUPPORTED_FIELDS
from codesdk.sandbox.egress.intersection import intersect, restrict_to_hosts
from codesdk.sandbox.egress.rules import EgressRules, Protocol
from codesdk.sandbox.isolation.spec import RESERVED_PIDS
from codesdk.sandbox.profiles.loader import ProfileInvalid, ProfileUnknown, load_profiles, read_profile, schema
from codesdk.sandbox.profiles.profile import RUNTIMES, TIGHTER, Profile, Seccomp, WorkspaceMode

SHIPPED = Path(__file__).resolve().parents[4] / "sandbox-images" / "profiles"
FILES = sorted(SHIPPED.glob("*.yaml"))
HEAD = "version: 1\nname: mine\ndescription: For a test.\n"


def looser(profile, than):
    """Fields in which `profile` grants more than `than`, or something different."""
    return tuple(name for name in Profile.model_fields if not within(name, getattr(profile, name), getattr(than, name)))


def within(name, value, bound):
    if name not in TIGHTER:
        return value == bound
    return TIGHTER[name](value, value) == TIGHTER[name](bound, value)  # with itself: puts rules in the same order


def read(tmp_path: Path, text: str, name: str = "mine") -> Profile:
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return read_profile(path)


def wrong(tmp_path: Path, line: str) -> ProfileInvalid:
    with pytest.raises(ProfileInvalid) as raised:
        read(tmp_path, HEAD + line + "\n")
    return raised.value


def test_the_default_profile_of_the_files_is_the_default_of_the_code():
    assert load_profiles(SHIPPED).named("default") == Profile()


def test_every_shipped_profile_names_a_shipped_image():
    folders = {path.parent.name for path in SHIPPED.parent.glob("*/Dockerfile")}
    assert set(load_profiles(SHIPPED).images()) <= folders


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_profile_fits_the_schema_that_editors_use(path):
    jsonschema_rs.validator_for(schema()).validate(read_document(path).data)


def test_the_schema_file_is_what_the_code_says():
    text = (SHIPPED / "profile.schema.json").read_text()
    assert json.loads(text) == schema(), "write it anew: see docs/reference/profiles.md"


def test_sizes_and_times_may_have_units(tmp_path):
    found = read(tmp_path, HEAD + "memory_bytes: 2 GiB\nwall_s: 90s\ngrace_s: 500ms\nidle_s: 1h\ntmp_bytes: 4096\n")
    assert (found.memory_bytes, found.wall_s, found.grace_s, found.idle_s) == (2 << 30, 90, 0.5, 3600)
    assert found.tmp_bytes == 4096


def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_key(tmp_path):
    fault = wrong(tmp_path, "memory_byte: 1GiB")
    assert (fault.details["line"], fault.details["column"]) == (4, 1)
    assert fault.advice() == "Did you mean `memory_bytes`?"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("memory_bytes: 1MB", "not a valid quantity"),
        ("wall_s: soon", "not a valid quantity"),
        ("wall_s: 0", "greater than 0"),
        ("memory_bytes: 1MiB", "greater than or equal"),
        ("pids: yes", "valid integer"),
        ("pids: true", "is a number"),
        ("cpus: true", "is a number"),
        ("read_only_root: false", "True"),
        ("tool_uid: fixed", "unique"),
        ("seccomp: unconfined", "codesdk"),
        ("workspace_mode: write", "rw"),
        ("workspace: /", "pattern"),
        ("workspace: /../etc", "pattern"),
        ("image: ../base", "pattern"),
        ("runtime: kata", "not one of those that are tested"),
        ("memory_bytes: 1GiB\nmemory_bytes: 2GiB", "Duplicate key"),
        ("- a list", "not YAML"),
    ],
)
def test_a_wrong_value_is_refused_with_the_reason(tmp_path, line, says):
    assert says in wrong(tmp_path, line).message


def test_a_file_says_the_name_that_it_has(tmp_path):
    with pytest.raises(ProfileInvalid, match="`name` is `mine` in a file of `other`"):
        read(tmp_path, HEAD, "other")


def test_a_directory_without_the_default_profile_is_refused(tmp_path):
    read(tmp_path, HEAD)
    with pytest.raises(ProfileInvalid, match=r"default\.yaml:1:1"):
        load_profiles(tmp_path)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ProfileUnknown) as raised:
        load_profiles(SHIPPED).named("smal")
    assert raised.value.advice() == "Did you mean `small`?"


# -- tightening ------------------------------------------------------------------------------------------------------

AMOUNTS = {name: field for name, field in Profile.model_fields.items() if field.annotation in (int, float)}
HOSTS = ("a.example", "b.a.example", "c.b.a.example", "z.example", "other.test")
PATTERNS = st.sampled_from((*HOSTS, "*.a.example", "*.b.a.example", "*.other.test"))
RULE = st.fixed_dictionaries(
    {"host": PATTERNS},
    optional={
        "ports": st.lists(st.sampled_from((80, 443, 8443)), min_size=1, max_size=2, unique=True),
        "allow_ech": st.booleans(),
        "allow_missing_sni": st.booleans(),
    },
) | st.fixed_dictionaries(
    {"host": st.sampled_from(HOSTS), "protocol": st.just("http")},
    optional={
        "upstream": st.just("https"),
        "upstream_port": st.sampled_from((443, 8443)),
    },
).flatmap(
    lambda rule: (
        st.just(rule)
        if "upstream" not in rule
        else st.lists(st.sampled_from(("one", "two")), unique=True, max_size=2).map(
            lambda names: {**rule, "inject": [{"header": f"X-{name}", "secret": name} for name in names]}
        )
    )
)


def _no_two_for_one_place(found: list[dict[str, object]]) -> EgressRules:
    kept: dict[tuple[object, object], dict[str, object]] = {}
    for rule in found:
        kept.setdefault((rule["host"], rule.get("protocol", "tls")), rule)
    return EgressRules.model_validate({"rules": list(kept.values())})


EGRESS = st.builds(
    lambda rules, up, once: rules.model_copy(update={"bytes_up": up, "at_once": once}),
    st.lists(RULE, max_size=5).map(_no_two_for_one_place),
    st.integers(0, 100),
    st.integers(1, 32),
)
PROFILES = st.fixed_dictionaries(
    {
        "egress": EGRESS,
        "runtime": st.sampled_from(RUNTIMES),
        "seccomp": st.sampled_from(Seccomp),
        "workspace_mode": st.sampled_from(WorkspaceMode),
        **{name: st.integers(4096, 2**40) for name in AMOUNTS if name.endswith("_bytes") and name != "memory_bytes"},
        "memory_bytes": st.integers(2**25, 2**40),
        "pids": st.integers(80, 10_000),
        "cpus": st.floats(0.01, 64),
        "open_files": st.integers(64, 2**20),
        "workspace_inodes": st.integers(1024, 2**30),
        "wall_s": st.floats(0.1, 1e6),
        "grace_s": st.floats(0, 60),
        **{name: st.just(0) | st.floats(0.1, 1e6) for name in ("pause_after_s", "idle_s", "lifetime_s")},
        "file_bytes": st.just(0) | st.integers(1, 2**40),
        "workspace_bytes": st.just(0) | st.integers(1, 2**40),
    }
).map(lambda values: Profile(**values))
BOUNDS = st.builds(
    SandboxBounds,
    memory_bytes=st.none() | st.integers(2**25, 2**41),
    pids=st.none() | st.integers(80, 20_000),
    open_files=st.none() | st.integers(64, 2**21),
    file_bytes=st.none() | st.integers(1, 2**41),
    keep_output_bytes=st.none() | st.integers(0, 2**41),
    show_output_bytes=st.none() | st.integers(256, 2**41),
    max_read_bytes=st.none() | st.integers(1024, 2**41),
    egress=st.none() | st.lists(PATTERNS, max_size=4).map(tuple),
)
OBLIGATIONS = st.builds(Obligations, timeout_s=st.none() | st.floats(0.001, 1e9), sandbox=BOUNDS)


def test_every_field_says_which_way_is_tighter_or_has_none():
    unordered = {"name", "image", "tool_uid", "read_only_root", "workspace"}
    assert set(Profile.model_fields) - set(TIGHTER) == unordered


def test_of_every_field_of_a_profile_a_rule_may_bound_it_or_is_told_why_not():
    bounded = set(SandboxBounds.model_fields)
    assert bounded | set(UNSUPPORTED_FIELDS) == set(Profile.model_fields)
    assert bounded & set(UNSUPPORTED_FIELDS) == set()
    assert bounded <= set(TIGHTER)


@given(PROFILES, OBLIGATIONS)
def test_an_obligation_never_loosens_anything(profile, obligations):
    tight = profile.tighten(obligations)
    assert looser(tight, profile) == ()
    assert tight.tighten(obligations) == tight
    if obligations.timeout_s is not None:
        assert tight.wall_s == min(profile.wall_s, obligations.timeout_s)


@given(PROFILES, OBLIGATIONS, OBLIGATIONS)
def test_the_order_of_obligations_does_not_matter(profile, one, other):
    assert profile.tighten(one).tighten(other) == profile.tighten(other).tighten(one)


@given(PROFILES, st.lists(OBLIGATIONS, max_size=4))
def test_several_obligations_together_are_the_tightest_of_all(profile, obligations):
    one_by_one = profile
    for each in obligations:
        one_by_one = one_by_one.tighten(each)
    together = profile.tighten(combine_obligations(obligations))
    assert looser(together, one_by_one) == looser(one_by_one, together) == ()


@given(EGRESS, EGRESS, st.sampled_from(HOSTS), st.sampled_from((80, 443, 8443)), st.sampled_from(Protocol))
def test_tighter_egress_reaches_nothing_that_either_would_not(one, other, host, port, protocol):
    found = intersect(one, other).find(host, port, protocol)
    if found is not None:
        for rules in (one, other):
            bound = rules.find(host, port, protocol)
            assert bound is not None
            assert (bound.upstream, bound.upstream_port) == (found.upstream, found.upstream_port)
            assert set(found.inject) <= set(bound.inject)
            assert found.allow_ech <= bound.allow_ech
            assert found.allow_missing_sni <= bound.allow_missing_sni
    assert intersect(one, other).bytes_up == min(one.bytes_up, other.bytes_up)


@given(
    EGRESS,
    st.lists(PATTERNS, max_size=4),
    st.sampled_from(HOSTS),
    st.sampled_from((80, 443, 8443)),
    st.sampled_from(Protocol),
)
def test_hosts_leave_of_egress_exactly_what_they_name(rules, patterns, host, port, protocol):
    named = any(covers(pattern, host) for pattern in patterns)
    found, before = restrict_to_hosts(rules, patterns).find(host, port, protocol), rules.find(host, port, protocol)
    assert (found is not None) == (named and before is not None)
    if found is not None:
        assert found.model_copy(update={"host": "", "ports": ()}) == before.model_copy(update={"host": "", "ports": ()})


@given(PROFILES, PROFILES)
def test_any_limits_on_top_of_any_profile_give_what_neither_would_refuse(profile, other):
    tight = profile.tightened(**{name: getattr(other, name) for name in TIGHTER})
    assert looser(tight, profile) == ()
    assert set(looser(tight, other)) <= set(Profile.model_fields) - set(TIGHTER)


def test_no_limit_is_looser_than_any_and_never_wins():
    capped, open_ = Profile(workspace_bytes=1 << 20), Profile(workspace_bytes=0)
    assert looser(open_, capped) == ("workspace_bytes",)
    assert looser(capped, open_) == ()
    assert open_.tightened(workspace_bytes=1 << 20) == capped.tightened(workspace_bytes=0) == capped


def test_what_is_no_limit_cannot_be_set_by_policy():
    with pytest.raises(KeyError):
        Profile().tightened(image="other")


def test_the_smallest_profile_leaves_tools_some_processes():
    assert min(load_profiles(SHIPPED).named(name).pids for name in load_profiles(SHIPPED).names()) > RESERVED_PIDS
