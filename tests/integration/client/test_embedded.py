"""CodeSDK as the child of an app: `codesdk.embedded()` and `codesdkd`, as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import codesdk
from codesdk.client.embedded import StartFailed

pytestmark = pytest.mark.full

START_S = 120.0
PARENT = """
import subprocess, sys
argv = [sys.executable, "-m", "codesdk.cli.stack.daemon", "--with-parent", "--port", "0", "--sandbox", "plain", "--data-dir", sys.argv[1]]
child = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
print(child.stdout.readline(), end="", flush=True)
child.wait()
"""


def test_an_app_runs_commands_in_a_codesdk_of_its_own(tmp_path: Path) -> None:
    with codesdk.embedded(data_dir=tmp_path / "data", sandbox="plain") as client:
        pieces: list[tuple[float, str]] = []
        with client.session() as session:
            line = "for i in 1 2 3; do echo line $i; sleep 0.5; done"
            result = session.run(line, on_output=lambda text: pieces.append((time.monotonic(), text)))
            ended = time.monotonic()
            unreadable = session.run("X=echo; $X computed")
            session.files.write("a.bin", bytes(range(256)))
            assert session.run("sha256sum a.bin").stdout.startswith(
                "40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880"
            )
        assert (result.exit_code, result.stdout) == (0, "line 1\nline 2\nline 3\n")
        assert "".join(text for _, text in pieces) == result.stdout
        assert pieces[0][0] < ended - 0.5, "the first line came with the last"
        assert unreadable.stdout == "computed\n"
        pid = int(json.loads((tmp_path / "data" / "run" / "api.json").read_text())["pid"])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_start_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "policy.yaml").write_text("version: 1\nrules: nothing\n")
    with pytest.raises(StartFailed, match=r"policy\.yaml"):
        codesdk.embedded(data_dir=tmp_path / "data", sandbox="plain", policies=tmp_path / "bad")


def test_the_daemon_ends_with_the_program_that_started_it(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PARENT, str(tmp_path / "data")]
    with (tmp_path / "progress").open("w") as progress:
        parent = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=progress, text=True)
    assert parent.stdout is not None
    ready = json.loads(parent.stdout.readline())
    assert set(ready) == {"url", "key", "data_dir", "pid"}
    parent.kill()
    assert parent.wait(START_S) == -signal.SIGKILL
    parent.stdout.close()
    until = time.monotonic() + START_S
    while Path(f"/proc/{ready['pid']}/stat").exists() and " Z " not in Path(f"/proc/{ready['pid']}/stat").read_text():
        assert time.monotonic() < until, (tmp_path / "progress").read_text()
        time.sleep(0.1)
    assert not (tmp_path / "data" / "run" / "api.json").exists()
