from __future__ import annotations

import pytest

from codesdk.storage.url import DatabaseUrlWrong, display_url, parse_url


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_form_of_a_postgresql_url_means_the_one_driver(scheme):
    url = parse_url(f"{scheme}://u:p%40ss@db:5433/name?sslmode=require")
    assert url.drivername == "postgresql+psycopg"
    assert (url.username, url.password, url.host, url.port, url.database) == ("u", "p@ss", "db", 5433, "name")
    assert url.query == {"sslmode": "require"}


@pytest.mark.parametrize("text", ["nonsense", "mongo://x/y", "postgresql+asyncpg://u:hunter2@x/y", "x:hunter2@y", ""])
def test_what_is_no_url_of_ours_is_refused_and_not_repeated(text):
    with pytest.raises(DatabaseUrlWrong) as wrong:
        parse_url(text)
    assert "CODESDK_DATABASE_URL" in str(wrong.value)
    assert "hunter2" not in str(wrong.value)


def test_a_port_that_is_no_number_is_refused_without_showing_the_password():
    with pytest.raises(DatabaseUrlWrong) as wrong:
        parse_url("postgresql://u:hunter2@db:port/x")
    assert "hunter2" not in str(wrong.value)


def test_what_is_shown_has_no_password_wherever_it_stood():
    assert display_url(parse_url("postgresql://u:hunter2@db:5433/n?password=hunter2")) == "postgresql://u@db:5433/n"
    assert display_url(parse_url("postgresql://u:hunter2@/n?host=/run/pg")) == "postgresql://u@/n on /run/pg"
    assert display_url(parse_url("sqlite:////var/x.db")) == "sqlite:////var/x.db"
