"""Options win over the environment, and both reach child processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from codesdk.cli.effective_settings import load_settings, settings_environment
from codesdk.settings import Settings, SettingWrong


def test_what_was_typed_wins_over_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("CODESDK_DATA_DIR", "/elsewhere")
    monkeypatch.setenv("CODESDK_PORT", "1234")

    settings = load_settings(tmp_path)

    assert settings.data_dir == tmp_path
    assert settings.port == 1234


def test_a_relative_place_is_made_absolute_for_processes_that_run_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    settings = load_settings(Path("data"), Path("rules"))

    assert settings.data_dir == tmp_path / "data"
    assert settings.policies_dir == tmp_path / "rules"


def test_a_child_process_gets_the_very_same_settings(monkeypatch, tmp_path):
    settings = load_settings(tmp_path, tmp_path / "rules", 0, redis_url="unix:///x.sock", wait_s=7.5)
    for name, value in settings_environment(settings).items():
        monkeypatch.setenv(name, value)

    assert Settings() == settings


def test_a_wrong_variable_is_named(monkeypatch):
    monkeypatch.setenv("CODESDK_POLL_S", "often")

    with pytest.raises(SettingWrong, match="CODESDK_POLL_S"):
        load_settings()


def test_an_empty_variable_is_as_good_as_none(monkeypatch):
    usual = load_settings().data_dir
    monkeypatch.setenv("CODESDK_DATA_DIR", "")

    assert load_settings().data_dir == usual
