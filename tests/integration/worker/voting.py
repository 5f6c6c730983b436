"""A process that dies at the commit of a vote: `voting.py SETTINGS TENANT APPROVAL DIGEST PRINCIPAL before|after`."""

from __future__ import annotations

import os
import signal
import sys

from codesdk.approvals import Verdict
from codesdk.bootstrap import Services
from codesdk.settings import Settings


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def main(given, tenant, approval, digest, by, moment):  # noqa: PLR0917 (the command line's words)
    services = Services(Settings.model_validate_json(given))
    dialect = services.database.writer.dialect
    commit = dialect.do_commit

    def do_commit(connection):
        if moment == "before":
            die()
        commit(connection)
        die()

    def arm(_unit):
        dialect.do_commit = do_commit

    services.pipeline.vote(tenant, approval, Verdict.APPROVE, digest=digest, by=by, comment=None, before=arm)


if __name__ == "__main__":
    main(*sys.argv[1:])
