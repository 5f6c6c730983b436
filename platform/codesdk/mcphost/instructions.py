"""What a client's model is told of its session when it connects: where its files are, what is installed, and the rules."""

from __future__ import annotations

from pathlib import Path

from codesdk.sandbox.profiles.profile import Profile, WorkspaceMode

_ACCESS = {
    WorkspaceMode.RW: "a copy: nothing you change there changes the user's own files",
    WorkspaceMode.RO: "a copy that can't be changed",
    WorkspaceMode.NONE: "empty and closed to tools",
}
_RULES = (
    "A policy decides on every call. A call may be denied, or may have to wait for a person; the answer says so and says"
    " what to do."
)
_MISSING = (
    "If a program or a host is missing, don't work around it: say which, so that the user can open a session with another"
    " profile."
)


def session_instructions(profile: Profile, images_dir: Path | None) -> str:
    """Return the instructions for a session with this profile.

    What its image has is in the image's folder below `images_dir`, a phrase in `contents.txt`; images of the operator's
    list have no folder. None: sandboxes are processes of this machine, whose workspaces lie elsewhere.
    """
    place, installed = "", " Installed: what this machine has."
    if images_dir is not None:
        contents = _read_contents(images_dir / profile.image)
        place, installed = f"{profile.workspace}, ", f" Installed: {contents}." if contents else ""
    return (
        f"These tools run in a sandbox of this session. Its workspace is {place}{_ACCESS[profile.workspace_mode]}."
        f"{installed} {_network(profile)} {_RULES} {_MISSING}"
    )


def _read_contents(folder: Path) -> str:
    try:
        return " ".join((folder / "contents.txt").read_text().split())
    except OSError:
        return ""


def _network(profile: Profile) -> str:
    hosts = ", ".join(dict.fromkeys(rule.host for rule in profile.egress.rules))
    if not hosts:
        return "There is no network, and so no package index."
    return f"Of the network it reaches only {hosts}, through the proxy that its environment names."
