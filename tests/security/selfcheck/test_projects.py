"""Ordinary work still runs under the seccomp filter: typical uses of the image's programs."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine

PROJECT = """
set -e
mkdir -p work && cd work
git init -q . && git config user.email t@example.com && git config user.name t
printf 'def double(x):\\n    return 2 * x\\n' > lib.py
printf 'import lib\\n\\ndef test_double():\\n    assert lib.double(2) == 4\\n' > test_lib.py
printf '[project]\\nname = "lib"\\nversion = "1.0"\\n[tool.setuptools]\\npy-modules = ["lib"]\\n' > pyproject.toml
git add . && git commit -q -m one && git checkout -q -b two && git mv lib.py other.py && git mv other.py lib.py
git stash list && git gc -q && git fsck && git log --oneline | wc -l
"""
WORK = {
    "git": PROJECT,
    "tests": f"{PROJECT}\npython3 -m pytest -q -p no:cacheprovider .",
    "a wheel": f"{PROJECT}\npython3 -c 'from setuptools import build_meta as b; print(b.build_wheel(\"/tmp\"))'\nunzip -l /tmp/lib-1.0*.whl || python3 -m zipfile -l /tmp/lib-1.0*.whl",
    "a search": f"{PROJECT}\nrg --threads 4 double .",
    "threads": "python3 -c 'from concurrent.futures import ThreadPoolExecutor as P; print(sum(P(8).map(abs, range(1000))))'",
    "processes": "python3 -c 'from multiprocessing import Pool\nwith Pool(4) as p: print(sum(p.map(abs, range(100))))'",
    "shared memory": "python3 -c 'from multiprocessing.shared_memory import SharedMemory as S; s = S(create=True, size=9); s.close(); s.unlink()'",
    "asyncio": "python3 -c 'import asyncio\nasync def m():\n p = await asyncio.create_subprocess_exec(\"true\"); return await p.wait()\nprint(asyncio.run(m()))'",
    "a server": 'python3 -c \'import http.server as h, threading, urllib.request as u\ns = h.ThreadingHTTPServer(("127.0.0.1", 0), h.SimpleHTTPRequestHandler)\nthreading.Thread(target=s.serve_forever, daemon=True).start()\nprint(u.urlopen(f"http://127.0.0.1:{s.server_port}/").status)\'',
    "a database": 'python3 -c \'import sqlite3; d = sqlite3.connect("d.db"); d.execute("pragma journal_mode=wal"); d.execute("create table t(x)"); d.commit()\'',
    "copies": "cp -a /usr/share/doc/git gitdoc && tar czf t.tgz gitdoc && mkdir -p out && tar xzf t.tgz -C out && diff -r --no-dereference gitdoc out/gitdoc",
}


@pytest.mark.parametrize("work", WORK)
def test_work_is_done(runc, work):
    with runc.own() as sandbox:
        ran = runc.sh(WORK[work], sandbox)
    assert ran.result.exit_code == 0, (ran.stdout, ran.stderr)
