from __future__ import annotations

import pytest

from codesdk.settings.operator_key import NoOperatorKey, operator_key


def test_the_key_is_the_data_directorys_or_that_of_the_file_that_was_named(tmp_path):
    (tmp_path / "operator.key").write_text("ours\n")
    (tmp_path / "mounted").write_text("theirs\n")
    assert operator_key(tmp_path) == "ours"
    assert operator_key(tmp_path, tmp_path / "mounted") == "theirs"


def test_a_named_file_that_is_not_there_is_said_with_its_setting(tmp_path):
    with pytest.raises(NoOperatorKey, match="none") as missing:
        operator_key(tmp_path, tmp_path / "none")
    assert "CODESDK_OPERATOR_KEY_FILE" in missing.value.advice()
