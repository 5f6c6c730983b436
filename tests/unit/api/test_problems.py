"""Faults as problem documents."""

from __future__ import annotations

import json

from codesdk.api.problems import problem
from codesdk.approvals import ApprovalConflict
from codesdk.errors import Fault, InternalFault


class Gone(Fault):
    """It is not there any more.

    More words.
    """

    code = "GONE_AWAY"
    status = 410
    retryable = True


def body(fault):
    return json.loads(problem(fault).body)


def test_a_fault_becomes_a_problem_with_all_that_a_client_needs():
    fault = Gone("The thing is gone.", advice="Make another.", details={"thing": 1})
    assert body(fault) == {
        "type": "urn:codesdk:problem:gone-away",
        "title": "It is not there any more",
        "status": 410,
        "detail": "The thing is gone.",
        "code": "GONE_AWAY",
        "retryable": True,
        "advice": "Make another.",
        "details": {"thing": 1},
    }
    assert problem(fault).media_type == "application/problem+json"


def test_a_conflict_keeps_what_stands():
    assert body(ApprovalConflict("Too late.", details={"state": "rejected"}))["details"] == {"state": "rejected"}


def test_our_own_defects_keep_their_words():
    for fault in (InternalFault("row 7 of secrets"), Fault("row 7 of secrets")):
        assert body(fault)["status"] == 500
        assert "secrets" not in json.dumps(body(fault))
