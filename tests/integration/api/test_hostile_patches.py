"""A small patch that is hard to place ends by itself and holds no other tenant up."""

from __future__ import annotations

import threading
import time

import pytest

from whole_stage import DEADLINE_S

pytestmark = [pytest.mark.engine, pytest.mark.redis, pytest.mark.timeout(300)]
HUNKS = 150
FILL = f"""python3 -c "open('f', 'w').write(''.join('a\\n' * 20 + f'u{{n}}\\n' for n in range({HUNKS})) + 'a\\n' * 400_000)" """
# Nearly all of each hunk fits nearly everywhere, and only one place fits whole. 12 KB.
PATCH = "--- a/f\n+++ b/f\n" + "".join(
    f"@@ -900000,21 +900000,21 @@\n{' a' + chr(10)}" + " a\n" * 19 + f"-u{n}\n+v{n}\n" for n in range(HUNKS)
)


def test_a_small_patch_that_is_hard_to_place_ends_and_holds_nobody_up(installation):
    hostile, other = installation.open_session(), installation.open_session()
    assert hostile.call(FILL).details["status"] == "completed"
    assert other.call("true").details["status"] == "completed"
    answers = []
    threads = [
        threading.Thread(target=lambda name=name: answers.append(hostile.use("patch_apply", {"patch": PATCH + name})))
        for name in ("", "# 2\n", "# 3\n")  # another text each, or they would join
    ]
    for thread in threads:
        thread.start()
    took = []
    while any(thread.is_alive() for thread in threads) or not took:
        began = time.monotonic()
        assert other.call("true").details["status"] == "completed"
        took.append(time.monotonic() - began)
    assert [answer.code for answer in answers] == ["PATCH_REJECTED"] * 3
    assert all("takes too long" in answer.text for answer in answers)
    assert max(took) < DEADLINE_S / 4
    assert hostile.call("grep -c v f").details["status"] == "failed"  # nothing was changed
