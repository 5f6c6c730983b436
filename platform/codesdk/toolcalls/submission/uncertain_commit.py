"""A call whose recording broke off: nobody can say whether the database has it, and it must not run twice for that."""

from __future__ import annotations

from collections.abc import Callable

from codesdk.domain.calls import CallIdentity
from codesdk.errors import Fault
from codesdk.storage.faults import CommitIndeterminate
from codesdk.toolcalls.records.call_record import Outcome


class CallUncertain(Fault):
    """The database broke off while it took a call: whether it was taken is not known."""

    code = "CALL_UNCERTAIN"
    retryable = True
    status = 503

    def __init__(self, identity: CallIdentity, cause: CommitIndeterminate) -> None:
        super().__init__(cause.message, advice=cause.advice())
        self.identity = identity
        """Which call it is, where it was taken."""


def record_or_uncertain(identity: CallIdentity, record: Callable[[], Outcome]) -> Outcome:
    """What came of recording the call.

    Raises:
        CallUncertain: it may have been recorded. Whatever else `record` raises: it was not.
    """
    try:
        return record()
    except CommitIndeterminate as fault:
        raise CallUncertain(identity, fault) from fault
