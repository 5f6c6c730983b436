"""An option's value may be attached to it: what a rule denies stays denied."""

from __future__ import annotations

import pytest

from codesdk.domain.decisions import Effect
from codesdk.policy import load_bundle

from .conftest import TOOLS, decide_line

POLICY = """\
version: 1
enable: [workspace.exec]
rules:
- id: denied
  effect: deny
  tool: workspace.exec
  command:
    any_of:
    - [[python, python3], -m, pip, ...]
    - [node, --require, evil, ...]
    - [git, -C, secret, ...]
    - [make, -f, evil.mk, ...]
    - [rm, ...]
default: ask
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("attached")
    (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")
    return load_bundle(folder, TOOLS)


@pytest.mark.parametrize(
    "line",
    [
        *("python -m pip install x", "python -mpip install x", "python3 -Impip install x", "python3 -W ignore -mpip", 'python "-mpip"'),
        *("node --require evil x.js", "node --require=evil x.js", "node --require='evil' x.js"),
        *("git -C secret log", "git -Csecret log", "git --no-pager -C secret log"),
        *("make -f evil.mk", "make -fevil.mk all", "env A=1 timeout 5 make -fevil.mk"),
        *("prlimit --nofile=5 rm x", "setarch x86_64 rm x", "gosu root rm x", "chpst -u root rm x", "tini -- rm x", "faketime 2020-01-01 rm x"),
    ],
)  # fmt: skip
def test_an_attached_value_is_the_same_as_one_in_a_word_of_its_own(bundle, line):
    assert decide_line(bundle, line).effect is Effect.DENY


@pytest.mark.parametrize(
    "line", ["python x.py -m", "git -C other log", "make -f other.mk evil", "python -c 'x' -mpipx", "node --require=evil2 x.js"]
)  # fmt: skip
def test_another_value_is_not_denied(bundle, line):
    assert decide_line(bundle, line).effect is Effect.ASK
