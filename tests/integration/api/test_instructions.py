"""What a client's model is told of its session: the workspace, what is installed, the network, and how approvals work."""

from __future__ import annotations

import pytest

from codesdk.mcphost.instructions import session_instructions
from codesdk.sandbox.profiles.loader import load_profiles
from codesdk.sandbox.profiles.profile import Profile, WorkspaceMode
from stage import REPOSITORY

IMAGES = REPOSITORY / "sandbox-images"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_client_learns_of_its_own_sessions_sandbox(stack, helpers, mode):
    _, token = stack.open_session()

    async def told():
        async with stack.client(token, mode) as client:
            return client.instructions

    text = helpers.within(told())
    assert "Its workspace is /workspace, a copy: nothing you change there changes the user's own files." in text
    assert "Installed: Python 3 with pytest, git, ripgrep and patch" in text
    assert "There is no network, and so no package index." in text
    assert "may have to wait for a person" in text
    assert len(text) < 800


def test_what_it_says_follows_the_profile():
    rules = {"rules": [{"host": "files.example.org"}, {"host": "*.example.com"}]}
    text = session_instructions(
        Profile.model_validate(
            {"egress": rules, "workspace": "/src", "image": "mine", "workspace_mode": WorkspaceMode.RO}
        ),
        IMAGES,
    )
    assert "Its workspace is /src, a copy that can't be changed." in text
    assert "it reaches only files.example.org, *.example.com, through the proxy" in text
    assert "Installed" not in text


def test_processes_of_this_machine_have_its_programs_and_no_workspace_of_that_name():
    text = session_instructions(Profile(), None)
    assert "Its workspace is a copy: nothing" in text
    assert "Installed: what this machine has." in text


@pytest.mark.parametrize("name", [path.parent.name for path in sorted(IMAGES.glob("*/Dockerfile"))])
def test_every_shipped_image_says_what_it_has(name):
    assert "Installed: Python 3" in session_instructions(Profile(image=name), IMAGES)


def test_every_shipped_profile_has_such_a_text():
    profiles = load_profiles(REPOSITORY / "sandbox-images" / "profiles")
    for name in profiles.names():
        assert "Installed: " in session_instructions(profiles.named(name), IMAGES), name
