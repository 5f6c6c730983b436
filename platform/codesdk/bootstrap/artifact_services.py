"""Wires artifacts to the place where settings want their bytes."""

from __future__ import annotations

from codesdk.artifacts import ArtifactService, GarbageCollector
from codesdk.artifacts.blobs import Blobs
from codesdk.artifacts.directory import DirectoryBlobs
from codesdk.artifacts.s3 import S3Blobs, parse_s3_url
from codesdk.artifacts.spool import SpoolDirectory
from codesdk.domain.clock import Clock
from codesdk.domain.ids import Ids
from codesdk.domain.quotas import Quotas
from codesdk.settings import Settings
from codesdk.storage.database import Database
from codesdk.storage.writer import Unit, Writer

INCOMING_DIR = "incoming"


class ArtifactServices:
    """Artifacts, and what collects what they leave, on one blob store."""

    def __init__(
        self,
        settings: Settings,
        *,
        database: Database,
        writer: Writer,
        clock: Clock,
        ids: Ids,
        quotas: Quotas[Unit],
    ) -> None:
        """Nothing is connected yet.

        Raises:
            ArtifactsUrlWrong: the setting names no store.
        """
        self.blobs = open_blobs(settings, clock)
        incoming = SpoolDirectory(settings.artifacts_dir() / INCOMING_DIR, settings.artifact_max_bytes)
        self.artifacts = ArtifactService(
            blobs=self.blobs,
            incoming=incoming,
            database=database,
            writer=writer,
            clock=clock,
            ids=ids,
            quotas=quotas,
        )
        self.collector = GarbageCollector(
            blobs=self.blobs, incoming=incoming, database=database, writer=writer, clock=clock
        )

    def close(self) -> None:
        """Let go of the store's connections."""
        self.blobs.close()


def open_blobs(settings: Settings, clock: Clock) -> Blobs:
    """The blob store of these settings.

    Raises:
        ArtifactsUrlWrong: the setting names none.
    """
    if not settings.artifacts_url:
        return DirectoryBlobs(settings.artifacts_dir())
    place = parse_s3_url(
        settings.artifacts_url,
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key,
    )
    return S3Blobs(place, clock)
