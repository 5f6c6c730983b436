"""The image that sandboxes run in: found by its content, else built on a base that was found or made."""

from __future__ import annotations

from pathlib import Path

from codesdk.provision import base_image
from codesdk.provision.command import Say
from codesdk.provision.engine import Engine
from codesdk.sandbox.engine import Engine as EngineClient
from codesdk.sandbox.images import ensure_image
from codesdk.sandbox.profile import Profile
from codesdk.settings import Settings


def ensure(engine: Engine, say: Say, *, name: str = "", images: Path | None = None) -> str:
    """The image's id. Built once; seconds where the base is there, minutes where it must be made as well.

    Args:
        engine: where to build.
        say: told that a build begins and of its steps.
        name: a folder in `images`; empty for the default profile's.
        images: the folder of sandbox images; None for the configured one.

    Raises:
        ProvisionFailed: no base image can be had.
        Fault: the build failed, the engine went away, or there is no such folder (see `sandbox.images`).
    """
    base = base_image.ensure(engine, say)
    client = EngineClient(engine.host)
    try:
        return ensure_image(
            client,
            name or Profile().image,
            base=base,
            images=images or Settings().images_dir,
            say=lambda line: _tell(line, say),
        )
    finally:
        client.close()


def _tell(line: str, say: Say) -> None:
    """The build's steps, without what their commands print."""
    if line.startswith("Step "):
        say(f"Building the sandbox image: {line}")
