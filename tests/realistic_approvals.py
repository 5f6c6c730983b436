"""Realistic approvals in a running stack, for tests of the approval page: real decisions of a real policy."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codesdk.sandbox.port import FileWrite
from codesdk.storage.writer import Unit
from codesdk.tenancy import store as tenancy
from codesdk.tenancy.principal import Role
from tickets import minted

POLICY = """
version: 1
name: acme
enable: [workspace.exec]
default: ask
rules:
  - {id: read-only, effect: allow, classification: read-only, reason: Reading is allowed.}
  - {id: everyday, effect: allow, command: {any_of: [[git, status], [git, add, ...], [git, commit, ...], [ls, ...], [cd, ...]]}}
  - id: force-push
    effect: ask
    reason: A force push replaces commits that others may have fetched.
    command: {any_of: [[git, push, ...]], any_flag: [--force, -f]}
    approval: {timeout: 1h, quorum: 2}
  - id: edit-in-place
    effect: ask
    reason: Edits in place are reviewed.
    command: {any_of: [[sed, ...]], any_flag: [-i]}
    grant: {offer: [once, session], max_ttl: 8h, max_uses: 20}
  - id: deletions
    effect: ask
    reason: Reports are finance's to delete.
    command: {any_of: [[rm, ...]]}
    approval: {timeout: 1h, group: finance, escalate: {after: 10m, to: leads}}
  - {id: releases, effect: ask, tool: release.deploy, reason: A person approves each release.}
"""
DEPLOY = """
name: release.deploy
version: 1.0.0
title: Deploy a release
description: Deploys a version to an environment.
classification: dangerous
runs: {argv: [sh, scripts/deploy.sh, {arg: /version}, {arg: /environment, flag: --to}]}
input_schema:
  type: object
  additionalProperties: false
  required: [version, environment]
  properties: {version: {type: string}, environment: {enum: [staging, production]}}
"""
SCRIPT = """#!/bin/sh
# Deploys the version $1 to the environment $3.
set -eu
version=$1
rsync -a --delete "build/$version/" "deploy@app-1.example.com:/srv/app/"
ssh deploy@app-1.example.com systemctl restart app
"""
FORCE = "cd shop && git add -A && git commit -m 'push --force is fine here' && git push --force origin main"
SED = "sed -i s/2.3.0/2.4.0/ pyproject.toml src/shop/version.py"
REMOVE = "rm -rf reports/2024 && ls reports"


class Approvals:
    """Opens approvals, and makes links to their pages."""

    def __init__(self, stack: Any) -> None:
        self.stack = stack
        self.services = stack.services
        self.people: dict[str, Any] = {}

    def person(self, name: str, *groups: str, role: Role = Role.APPROVER) -> Any:
        """A principal with that name, who is in these groups."""
        if name not in self.people:
            directory = self.services.directory
            self.people[name] = self.services.writer.run(lambda unit: directory.enroll(unit, "default", name, (role,)))[
                0
            ]
            for group in groups:
                self._join(name, group)
        return self.people[name]

    def _join(self, name: str, group: str) -> None:
        def join(unit: Unit) -> None:
            tenancy.join_group(unit.connection, tenancy.principal(unit.connection, self.people[name].id), group)

        self.services.writer.run(join)

    def ask(self, tool: str = "workspace_exec", **given: Any) -> Any:
        """The approval of a call of Omar's agent."""
        session, token = self.stack.open_for(self.person("Omar Diaz", role=Role.DEVELOPER))
        self.services.pipeline.submit(tool, given, self.services.directory.subject(token))
        return self.stack.pending(session)

    def link(self, asked: Any, person: Any, *, look_only: bool = False) -> str:
        """A link that answers as that person, or only shows the approval."""
        tickets = self.services.one_time_links
        ticket = minted(self.services.writer, tickets, asked, person, look_only=look_only)
        return str(tickets.page(ticket, self.stack.url))

    def state(self, asked: Any) -> Any:
        """The approval as it is now."""
        return self.services.approvals.find(asked.tenant_id, asked.id)


@contextmanager
def approvals_running(running: Callable[..., Any], root: Path) -> Iterator[Approvals]:
    """A stack with a policy and a registered tool of a small company."""
    tools = root / "tools"
    shutil.copytree(Path(__file__).parents[1] / "tool-registry", tools)
    (tools / "release.deploy.yaml").write_text(DEPLOY)
    with running(root, 10.0, policy=POLICY, registry_dir=tools) as stack:
        files = [FileWrite(path="scripts/deploy.sh", content=SCRIPT.encode())]
        files += [FileWrite(path=path, content=b'version = "2.3.0"\n') for path in SED.split()[3:]]
        stack.worker.files.write(tuple(files))
        made = Approvals(stack)
        made.person("Ann Lee", "finance")
        made.person("Bo Chen")
        made.person("Cleo Park", "leads")
        yield made
