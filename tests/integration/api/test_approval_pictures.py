"""The approval page of realistic calls, as people see it: on a desk and on a phone, in light and in dark.

`CODESDK_PICTURES=docs/how-to/pictures pytest tests/integration/api/test_approval_pictures.py` makes the pictures of the
docs again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from browser import browsing
from codesdk.approvals import Verdict
from realistic_approvals import FORCE, REMOVE, SED, approvals_running

SCREENS = {"desk": (900, 1000, 1.0, False), "phone": (375, 812, 1.5, False), "phone-dark": (375, 812, 1.5, True)}


@pytest.fixture(scope="module")
def company(tmp_path_factory, helpers):
    with approvals_running(helpers.running, tmp_path_factory.mktemp("company")) as made:
        yield made


@pytest.fixture(scope="module")
def browser(chromium_command):
    with browsing(chromium_command) as opened:
        yield opened


@pytest.fixture
def place(tmp_path):
    found = Path(os.environ.get("CODESDK_PICTURES", "") or tmp_path)
    found.mkdir(parents=True, exist_ok=True)
    return found


def look(browser, url, screen, place, name):
    """Open a page on a screen, take its picture, and return what a person reads."""
    width, height, scale, dark = SCREENS[screen]
    browser.view(width, height, scale=scale, dark=dark)
    browser.open(url)
    browser.screenshot(place / f"approval-{name}-{screen}.png")
    assert browser.look("document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.exceptions == []
    return browser.text()


def vote(company, asked, person, verdict, comment=None):
    company.services.pipeline.vote(
        asked.tenant_id, asked.id, verdict, digest=asked.digest, by=company.person(person).id, comment=comment
    )


@pytest.mark.parametrize("screen", SCREENS)
def test_a_force_push_says_what_it_does_and_who_has_approved(company, browser, place, screen):
    asked = company.ask(command=FORCE)
    vote(company, asked, "Bo Chen", Verdict.APPROVE, "I have told the team.")
    read = look(browser, company.link(asked, company.person("Ann Lee")), screen, place, "force-push")
    assert "1 of 2 have approved" in read


@pytest.mark.parametrize("screen", SCREENS)
def test_a_release_shows_its_command_line_and_its_script(company, browser, place, screen):
    asked = company.ask("release_deploy", version="2.4.0", environment="production")
    read = look(browser, company.link(asked, company.person("Ann Lee")), screen, place, "release")
    assert "sh scripts/deploy.sh 2.4.0 --to production" in read


@pytest.mark.parametrize("screen", SCREENS)
def test_an_edit_in_place_offers_its_grant(company, browser, place, screen):
    asked = company.ask(command=SED)
    read = look(browser, company.link(asked, company.person("Bo Chen")), screen, place, "edit")
    assert "Overwrites files" in read


def test_a_deletion_is_finances_to_answer(company, browser, place):
    asked = company.ask(command=REMOVE)
    read = look(browser, company.link(asked, company.person("Ann Lee")), "desk", place, "deletion")
    assert "leads" not in read
    vote(company, asked, "Ann Lee", Verdict.REJECT, "Keep the reports of 2024 until March.")
    read = look(browser, company.link(asked, company.person("Bo Chen")), "phone", place, "rejected")
    assert "Rejected by Ann Lee" in read
