"""Has somebody else's MCP server started once, to hear what it offers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from codesdk.cli.given import InputWrong
from codesdk.cli.places import settings_of
from codesdk.cli.voice import Voice
from codesdk.domain.clock import SystemClock
from codesdk.domain.ids import RandomIds, TenantId
from codesdk.errors import ExitCode, Fault
from codesdk.provision import bubblewrap
from codesdk.provision import engine as docker_engine
from codesdk.provision.sandbox_image import Shelf
from codesdk.registry import LoadedSource
from codesdk.sandbox.docker_driver import DockerSandboxes
from codesdk.sandbox.egress.secret_files import read_secret
from codesdk.sandbox.engine import Engine
from codesdk.sandbox.local.confinement import find as find_confinement
from codesdk.sandbox.local.driver import LocalSandboxes, host_image
from codesdk.sandbox.port import Sandboxes
from codesdk.sandbox.profiles import load_profiles
from codesdk.settings import Settings
from codesdk.settings.hold import hold
from codesdk.sources.asking import offered_by
from codesdk.sources.guests import Guests
from codesdk.sources.listing import Listing
from codesdk.sources.remote import remote_starter
from codesdk.sources.stdio import StdioStarter


class BeingAsked(Fault):
    """Another command has a server started."""

    code = "BEING_ASKED"
    status = 409
    exit_code = ExitCode.UNAVAILABLE


def listing_of(loaded: LoadedSource, tenant: str | None, data_dir: Path | None, voice: Voice) -> Listing:
    """What its server offers now. `tenant`: whose secrets a remote server is shown.

    Raises:
        BeingAsked: another such command runs.
        SourceUnavailable: the server did not start, or did not keep to the protocol.
        Fault: no sandbox can be had for it.
    """
    settings = settings_of(data_dir)
    settings.prepare_data_dir()
    if loaded.source.manifest.url is not None:
        return _listing_from_afar(loaded, tenant, settings, voice)
    held = hold(settings.data_dir / "asking.lock")
    if isinstance(held, str):
        raise BeingAsked(f"Process {held} is asking a server just now.", advice="Wait until it is done.")
    source, clock = loaded.source, SystemClock()
    profiles = load_profiles(settings.profiles_dir)
    name = source.manifest.image or profiles.named(source.manifest.profile).image
    voice.say(f"Starting the MCP server {source.name} in a sandbox without network, to hear what it offers")
    with closing(held), _sandboxes(settings, name, voice) as (sandboxes, instance, image):
        sandboxes.sweep(())  # of a command that was killed
        guests = Guests(sandboxes, instance, {name: image}, profiles, RandomIds(clock))
        starter = StdioStarter(guests, clock, RandomIds(clock))
        return offered_by(source, lambda: starter.begin(source, None, TenantId("")), clock)


def _listing_from_afar(loaded: LoadedSource, tenant: str | None, settings: Settings, voice: Voice) -> Listing:
    source = loaded.source
    if source.manifest.headers and not tenant:
        advice = "Give a tenant's id (`codesdk tenants list`) with --tenant."
        raise InputWrong(f"{source.name} is shown secrets of a tenant, and none is named.", advice=advice)
    voice.say(f"Asking the MCP server {source.name} at {source.manifest.url} what it offers")
    clock = SystemClock()
    starter = remote_starter(settings.source_networks, partial(read_secret, settings.resolved_secrets_dir()), clock)
    return offered_by(source, lambda: starter.begin(source, None, TenantId(tenant or "")), clock)


@contextmanager
def _sandboxes(settings: Settings, image: str, voice: Voice) -> Iterator[tuple[Sandboxes, str, str]]:
    """Sandboxes of an instance beside the installation's, so that no worker takes them for leftovers; and the image."""
    instance = settings.asking_instance()
    with ExitStack() as opened:
        if settings.is_local:
            plain = settings.local_sandbox == "plain"
            found = find_confinement("") if plain else bubblewrap.ensure(voice.say)
            local = LocalSandboxes(instance, settings.data_dir / "asking", found)
            yield opened.enter_context(closing(local)), instance, host_image()
            return
        chosen = {"CODESDK_DOCKER_HOST": settings.docker_host} if settings.docker_host else {}
        engine = docker_engine.ensure(voice.say, environ={**os.environ, **chosen})
        opened.callback(engine.stop)
        found_image = Shelf(settings, engine).provide(image, voice.say)
        docker = DockerSandboxes(instance, Engine(engine.host))
        yield opened.enter_context(closing(docker)), instance, found_image
