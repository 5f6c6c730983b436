"""Starts a third-party MCP server once to list its tools."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

from codesdk.cli.console.arguments import InputWrong
from codesdk.cli.console.terminal import Printer
from codesdk.cli.effective_settings import load_settings
from codesdk.domain.clock import SystemClock
from codesdk.domain.ids import RandomIds, TenantId
from codesdk.errors import ExitCode, Fault
from codesdk.provision.engines import docker_engine
from codesdk.provision.images.sandbox_images import ImageStore
from codesdk.provision.system import bubblewrap
from codesdk.registry import LoadedSource
from codesdk.sandbox.docker.driver import DockerSandboxes
from codesdk.sandbox.docker.engine import Engine
from codesdk.sandbox.egress.secret_files import read_secret
from codesdk.sandbox.local.confinement import detect_confinement
from codesdk.sandbox.local.driver import LocalSandboxes, host_image
from codesdk.sandbox.port import Sandboxes
from codesdk.sandbox.profiles.loader import load_profiles
from codesdk.settings import Settings
from codesdk.settings.process_lock import try_lock
from codesdk.sources.servers.server import list_offered_tools
from codesdk.sources.starters.probe_sandboxes import ProbeSandboxes
from codesdk.sources.starters.remote import remote_starter
from codesdk.sources.starters.stdio import StdioStarter
from codesdk.sources.tool_changes import ToolListing


class DiscoveryRunning(Fault):
    """Another command is listing a server's tools."""

    code = "BEING_ASKED"
    status = 409
    exit_code = ExitCode.UNAVAILABLE


def discover_tools(loaded: LoadedSource, tenant: str | None, data_dir: Path | None, printer: Printer) -> ToolListing:
    """Return the tools that the server offers now. `tenant`: whose secrets a remote server receives.

    Raises:
        DiscoveryRunning: another such command runs.
        SourceUnavailable: the server did not start, or violated the protocol.
        Fault: no sandbox can be started for it.
    """
    settings = load_settings(data_dir)
    settings.prepare_data_dir()
    if loaded.source.manifest.url is not None:
        return _discover_remote(loaded, tenant, settings, printer)
    held = try_lock(settings.data_dir / "asking.lock")
    if isinstance(held, str):
        raise DiscoveryRunning(f"Process {held} is listing a server's tools.", advice="Wait until it is done.")
    source, clock = loaded.source, SystemClock()
    profiles = load_profiles(settings.profiles_dir)
    name = source.manifest.image or profiles.named(source.manifest.profile).image
    printer.progress(f"Starting the MCP server {source.name} in a sandbox without network, to list its tools")
    with closing(held), _discovery_sandboxes(settings, name, printer) as (sandboxes, instance, image):
        sandboxes.sweep(())  # left by a killed command
        guests = ProbeSandboxes(sandboxes, instance, {name: image}, profiles, RandomIds(clock))
        starter = StdioStarter(guests, clock, RandomIds(clock))
        return list_offered_tools(source, lambda: starter.begin(source, None, TenantId("")), clock)


def _discover_remote(loaded: LoadedSource, tenant: str | None, settings: Settings, printer: Printer) -> ToolListing:
    source = loaded.source
    if source.manifest.headers and not tenant:
        advice = "Pass the tenant's id (`codesdk tenants list`) with --tenant."
        raise InputWrong(f"{source.name} needs a tenant's secrets, and no tenant is given.", advice=advice)
    printer.progress(f"Listing the tools of the MCP server {source.name} at {source.manifest.url}")
    clock = SystemClock()
    starter = remote_starter(settings.source_networks, partial(read_secret, settings.resolved_secrets_dir()), clock)
    return list_offered_tools(source, lambda: starter.begin(source, None, TenantId(tenant or "")), clock)


@contextmanager
def _discovery_sandboxes(settings: Settings, image: str, printer: Printer) -> Iterator[tuple[Sandboxes, str, str]]:
    """Yield sandboxes under a separate instance id, so that no worker removes them as leftovers, and the image."""
    instance = settings.discovery_instance_id()
    with ExitStack() as opened:
        if settings.is_local:
            plain = settings.local_sandbox == "plain"
            found = detect_confinement("") if plain else bubblewrap.ensure(printer.progress)
            local = LocalSandboxes(instance, settings.data_dir / "asking", found)
            yield opened.enter_context(closing(local)), instance, host_image()
            return
        engine = docker_engine.ensure(printer.progress, docker_host=settings.docker_host)
        opened.callback(engine.stop)
        found_image = ImageStore(settings, engine).provide(image, printer.progress)
        docker = DockerSandboxes(instance, Engine(engine.host))
        yield opened.enter_context(closing(docker)), instance, found_image
