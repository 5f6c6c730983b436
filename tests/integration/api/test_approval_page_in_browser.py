"""The approval page of realistic calls, as people see and use it in a real browser: desk and phone, light and dark.

`CODESDK_PICTURES=docs/how-to/pictures pytest tests/integration/api/test_approval_page_in_browser.py` makes the pictures
of the docs again.
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
    assert browser.look("[...document.querySelectorAll('mark')].map(mark => mark.innerText)") == ["git push --force"]
    assert "Publishes to a remote, rewrites history (--force)" in read
    assert "Bo Chen approved on " in read.partition("1 of 2 have approved")[2]
    assert "one more approver" in read
    assert "Ann Lee (you), Cleo Park" in read


@pytest.mark.parametrize("screen", SCREENS)
def test_a_release_shows_its_command_line_and_its_script(company, browser, place, screen):
    asked = company.ask("release_deploy", version="2.4.0", environment="production")
    read = look(browser, company.link(asked, company.person("Ann Lee")), screen, place, "release")
    assert "sh scripts/deploy.sh 2.4.0 --to production" in read
    assert "Runs code from the workspace (scripts/deploy.sh)" in read
    assert "rsync -a --delete" in read
    assert "sha256" not in read


@pytest.mark.parametrize("screen", SCREENS)
def test_an_edit_in_place_offers_its_grant_and_lists_only_files_as_files(company, browser, place, screen):
    asked = company.ask(command=SED)
    read = look(browser, company.link(asked, company.person("Bo Chen")), screen, place, "edit")
    assert "Overwrites files (-i)" in read
    assert "for at most 8 hours and 20 calls" in read
    files = read.partition("Files that your answer covers")[2].partition("Details")[0]
    assert "pyproject.toml: 18 bytes" in files
    assert "s/2.3.0" not in files


def test_a_group_that_may_answer_later_is_not_named_before(company, browser, place):
    asked = company.ask(command=REMOVE)
    url = company.link(asked, company.person("Ann Lee"))
    read = look(browser, url, "desk", place, "deletion")
    assert "one of finance" in read
    assert "leads" not in read
    assert "Cleo" not in read
    with company.services.database.writer.begin() as connection:
        later = "UPDATE approval_demands SET escalate_at = 1 WHERE approval_id = ?"
        connection.exec_driver_sql(later, (asked.id,))
    read = look(browser, url, "desk", place, "escalated")
    assert "one of finance or leads" in read
    assert "Ann Lee (you), Cleo Park" in read


def test_who_is_late_reads_what_another_has_decided_and_again_when_they_reload(company, browser, place):
    asked = company.ask(command=REMOVE)
    url = company.link(asked, company.person("Ann Lee"))
    company.person("Dan Fox", "finance")
    look(browser, url, "phone", place, "late")
    vote(company, asked, "Dan Fox", Verdict.REJECT, "Keep the reports of 2024 until March.")
    browser.press("button.yes")
    for _ in range(2):
        read = browser.text()
        assert "Rejected by Dan Fox on " in read
        assert "Keep the reports of 2024 until March." in read
        assert "The call did not run." in read
        assert browser.look("document.querySelectorAll('button').length") == 0
        look(browser, url, "phone", place, "rejected")
    assert company.state(asked).decided_by == company.person("Dan Fox").id


def test_after_an_approval_the_page_says_what_the_call_did(company, browser, place):
    asked = company.ask("release_deploy", version="2.4.1", environment="staging")
    url = company.link(asked, company.person("Ann Lee"))
    company.stack.worker.gate.clear()
    try:
        browser.open(url)
        browser.type("#comment", "Go ahead.")
        browser.press("button.yes")
        assert "Approved by Ann Lee on " in browser.text()
        browser.wait("document.body.innerText.includes('is running') || location.reload()")
    finally:
        company.stack.worker.gate.set()
    browser.wait("document.body.innerText.includes('The call ran and succeeded.') || location.reload()")
    read = look(browser, url, "phone", place, "approved")
    assert "“Go ahead.”" in read


def test_a_call_that_is_cancelled_says_so(company, browser, place):
    asked = company.ask(command=REMOVE)
    company.services.pipeline.cancel(asked.tenant_id, asked.session_id, asked.tool_call_id, "Omar cancelled it.")
    read = look(browser, company.link(asked, company.person("Ann Lee")), "phone", place, "withdrawn")
    assert "Withdrawn: the call was cancelled or its session was closed" in read


def test_a_link_that_only_shows_names_nobody_who_may_answer(company, browser, place):
    asked = company.ask(command=FORCE)
    read = look(browser, company.link(asked, company.person("Omar Diaz"), look_only=True), "phone", place, "look-only")
    assert "Your own API key" in read
    assert "2 approvers" in read
    assert "Cleo" not in read


ACTIVE = """(e => [e.id || e.className || e.tagName, getComputedStyle(e).outlineStyle, e.getBoundingClientRect().left >= 0])(
    document.activeElement)"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_person_answers_by_keyboard_alone_and_sees_where_they_are(company, browser, dark):
    asked = company.ask(command=SED)
    browser.view(375, 812, dark=dark)
    browser.open(company.link(asked, company.person("Bo Chen")))
    visited = []
    while not visited or visited[-1] != "yes":
        browser.key("Tab", code=9)
        name, outline, on_screen = browser.look(ACTIVE)
        assert outline == "solid", f"{name} shows no focus"
        assert on_screen, f"{name} is outside of the screen"
        visited.append(name)
    assert visited == ["skip", "SUMMARY", "comment", "INPUT", "no", "yes"]
    browser.key("Enter", code=13, text="\r", loads=True)
    assert "Approved by Bo Chen" in browser.text()
    assert browser.exceptions == []


def test_every_field_has_a_label_and_every_target_is_large_enough(company, browser):
    asked = company.ask(command=SED)
    browser.view(375, 812)
    browser.open(company.link(asked, company.person("Omar Diaz"), look_only=True))
    assert browser.look("document.documentElement.lang") == "en"
    unlabelled = (
        "[...document.querySelectorAll('textarea, input:not([type=hidden])')].filter(e => !e.labels.length).length"
    )
    assert browser.look(unlabelled) == 0
    heights = "[...document.querySelectorAll('button, fieldset label')].map(e => e.getBoundingClientRect().height)"
    assert min(browser.look(heights)) >= 40
    in_reach = "[...document.querySelectorAll('button')].every(e => e.getBoundingClientRect().bottom <= innerHeight)"
    assert browser.look(in_reach)
