"""The seccomp profile as data."""

from __future__ import annotations

import socket
from collections import Counter

from codesdk.sandbox.isolation.spec import security_options
from codesdk.sandbox.profiles.profile import Profile, Seccomp
from codesdk.sandbox.seccomp import document, option
from codesdk.sandbox.seccomp.allowed_syscalls import ENOSYS_CALLS, GRANTS
from codesdk.sandbox.seccomp.denials import DENIALS
from codesdk.sandbox.selfcheck.escapes_kernel import NUMBERS


def test_what_is_not_granted_is_refused():
    assert document()["defaultAction"] == "SCMP_ACT_ERRNO"
    assert {rule["action"] for rule in document()["syscalls"]} == {"SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"}


def test_every_grant_and_every_denial_states_its_reason():
    assert [grant for grant in GRANTS if not grant.reason] == []
    assert [denial for denial in DENIALS if not denial.reason] == []


def test_nothing_that_is_denied_on_purpose_is_granted():
    granted = {name for grant in GRANTS for name in grant.names}
    assert granted & {name for denial in DENIALS for name in denial.names} == set()
    assert granted & set(ENOSYS_CALLS) == set()


def test_a_call_stands_in_one_grant_or_has_a_condition_in_each():
    counts = Counter(name for grant in GRANTS for name in grant.names)
    conditional = {name for grant in GRANTS if grant.where for name in grant.names}
    assert {name for name, count in counts.items() if count > 1} <= conditional
    assert {grant.names for grant in GRANTS if not grant.where and set(grant.names) & conditional} == set()


def test_every_denial_is_tried_by_a_probe():
    denied = {name for denial in DENIALS for name in denial.names}
    assert denied == set(NUMBERS["x86_64"])


def test_no_second_architecture_is_let_in():
    assert [entry["subArchitectures"] for entry in document()["archMap"]] == [[], []]


def rules(name, *, apart):
    found = [rule["args"] for rule in document(apart=apart)["syscalls"] if name in rule["names"]]
    return [[(at["index"], at["op"], at["value"], at["valueTwo"]) for at in args] for args in found]


def test_who_reads_anothers_workspace_has_no_socket_that_can_be_led_to_a_place_in_it():
    unix = (0, "SCMP_CMP_EQ", socket.AF_UNIX, 0)
    assert [unix] in rules("socket", apart=False)
    assert rules("socketpair", apart=False) == [[unix]]
    assert [unix] not in rules("socket", apart=True)
    # A pair of datagram sockets can be connected anew; one of these two kinds cannot.
    kinds = (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
    assert rules("socketpair", apart=True) == [[unix, (1, "SCMP_CMP_MASKED_EQ", 0xF, kind)] for kind in kinds]


def test_the_profile_is_sent_inline_and_is_the_same_text_always():
    assert security_options(Profile()) == ["no-new-privileges", option()]
    assert option().startswith('seccomp={"defaultAction":"SCMP_ACT_ERRNO"')
    assert len(option()) < 16_384


def test_the_engines_own_filter_can_be_chosen_and_none_cannot():
    assert security_options(Profile(seccomp=Seccomp.ENGINE)) == ["no-new-privileges"]
    assert {choice.value for choice in Seccomp} == {"codesdk", "engine"}
