from __future__ import annotations

import pytest

from codesdk.storage.database import Database, DatabaseUrlWrong
from codesdk.storage.migration import upgrade


@pytest.mark.parametrize("url", ["nonsense", "mongo://x/y", "postgresql+nodriver://x/y"])
def test_a_url_that_names_no_database_says_which_setting_is_wrong(url):
    with pytest.raises(DatabaseUrlWrong) as wrong:
        Database(url)
    assert "CODESDK_DATABASE_URL" in str(wrong.value)


def test_a_new_database_is_private_wherever_it_lies(tmp_path):
    tmp_path.chmod(0o755)
    database = Database(f"sqlite:///{tmp_path / 'codesdk.db'}")
    upgrade(database)
    modes = {path.name: path.stat().st_mode & 0o077 for path in tmp_path.iterdir()}
    database.close()
    assert modes["codesdk.db"] == 0
    assert set(modes.values()) == {0}
