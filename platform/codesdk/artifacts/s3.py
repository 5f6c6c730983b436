"""Blobs in an S3-compatible store: one object per key, in an existing bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from codesdk.artifacts.artifact import ArtifactsUnavailable
from codesdk.artifacts.blobs import BlobInfo, BlobMissing
from codesdk.artifacts.spool import Spool
from codesdk.domain.clock import Clock
from codesdk.errors import ExitCode, Fault

READ_BYTES = 256 * 1024
"""Bytes per read."""
PART_BYTES = 16 * 1024 * 1024
"""Bytes per part, and the size from which an upload is split. The protocol allows 10,000 parts."""
CONNECT_S, READ_S = 5.0, 30.0
ATTEMPTS = 4
"""Tries per request, made by the library before the store counts as unavailable."""
_MISSING_CODES = frozenset({"404", "NoSuchKey", "NotFound"})
_DENIED_CODES = frozenset({"403", "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "401"})


class ArtifactsUrlWrong(Fault):
    """The setting names no usable location, or boto3 is not installed."""

    code = "ARTIFACTS_URL_WRONG"
    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class S3Location:
    """Bucket, prefix, endpoint and credentials."""

    bucket: str
    prefix: str
    """Prepended to every key; empty, or ending in a slash. Must belong to one database alone."""
    endpoint: str = ""
    """Empty: Amazon S3, by region."""
    region: str = ""
    access_key: str = ""
    """Empty: the library's own lookup (environment, profile, instance role)."""
    secret_key: str = field(default="", repr=False)


def parse_s3_url(url: str, *, endpoint: str, region: str, access_key: str, secret_key: str) -> S3Location:
    """Parse `s3://bucket/prefix`.

    Raises:
        ArtifactsUrlWrong: the URL has another form.
    """
    parts = urlsplit(url)
    if parts.scheme != "s3" or not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise ArtifactsUrlWrong(
            "CODESDK_ARTIFACTS_URL is not of the form s3://bucket/prefix.",
            advice="Correct it, or unset it to use the data directory. Access keys have their own settings.",
        )
    prefix = parts.path.strip("/")
    return S3Location(parts.netloc, f"{prefix}/" if prefix else "", endpoint, region, access_key, secret_key)


class S3Blobs:
    """Blobs as objects `<prefix><first two digits>/<key>`. Safe to use from any thread."""

    def __init__(
        self, place: S3Location, clock: Clock, *, connect_s: float = CONNECT_S, read_s: float = READ_S
    ) -> None:
        """Create the client. Connects on first use.

        Raises:
            ArtifactsUrlWrong: boto3 isn't installed, or rejects the endpoint.
        """
        try:
            # Imported here because it takes a third of a second, and most installations don't use it.
            import boto3  # noqa: PLC0415
            from boto3.s3.transfer import TransferConfig  # noqa: PLC0415
            from botocore.config import Config  # noqa: PLC0415
        except ImportError as error:
            raise ArtifactsUrlWrong(
                "Artifacts in S3 need boto3, which is not installed.", advice="Install `codesdk[s3]`."
            ) from error
        self._location = place
        self._clock = clock
        config = Config(
            connect_timeout=connect_s,
            read_timeout=read_s,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=32,
            # The server verifies each body against its signed hash. That is part of the signature protocol, so every
            # server supports it; some reject the newer checksum headers.
            s3={"payload_signing_enabled": True, "addressing_style": "path" if place.endpoint else "auto"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        try:
            self._client: Any = boto3.client(
                "s3",
                endpoint_url=place.endpoint or None,
                region_name=place.region or "us-east-1",
                aws_access_key_id=place.access_key or None,
                aws_secret_access_key=place.secret_key or None,
                config=config,
            )
        except ValueError as error:
            raise ArtifactsUrlWrong(f"CODESDK_S3_ENDPOINT is wrong: {error}.", advice="Give http(s)://host.") from error
        self._parts = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=2)

    def put(self, key: str, spool: Spool) -> None:
        """Store the spool's bytes durably under `key`, all or nothing. Repeating it is allowed."""
        with self._map_errors(key):
            spool.file.flush()
            self._client.upload_file(str(spool.path), self._location.bucket, self._name(key), Config=self._parts)

    def read(self, key: str, start: int = 0, length: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from `start` on, in pieces. Resumes after a broken connection."""
        left = length if length is not None else self._require_size(key) - start
        while left > 0:
            got = 0
            try:
                with self._map_errors(key):
                    for piece in self._body(key, start, left):
                        got += len(piece)
                        yield piece
            except ArtifactsUnavailable:
                if not got:  # the library has already retried
                    raise
            if not got:
                raise BlobMissing(f"The object {self._name(key)} is {left} bytes too short.")
            start, left = start + got, left - got

    def size(self, key: str) -> int | None:
        """Return the number of bytes under the key; None if there are none."""
        try:
            with self._map_errors(key):
                head = self._client.head_object(Bucket=self._location.bucket, Key=self._name(key))
        except BlobMissing:
            return None
        return int(head["ContentLength"])

    def delete(self, key: str) -> None:
        """Delete the bytes. Deleting a missing key does nothing."""
        with self._map_errors(key):
            self._client.delete_object(Bucket=self._location.bucket, Key=self._name(key))

    def keys(self) -> Iterator[BlobInfo]:
        """List all stored objects."""
        with self._map_errors(""):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._location.bucket, Prefix=self._location.prefix):
                for one in page.get("Contents", ()):
                    name = str(one["Key"]).removeprefix(self._location.prefix)
                    folder, _, key = name.partition("/")
                    if key[:2] == folder and "/" not in key:  # other objects aren't ours
                        yield BlobInfo(key, int(one["Size"]), one["LastModified"].timestamp())

    def sweep(self, older_than_s: float) -> int:
        """Abort multipart uploads that never finished."""
        before = self._clock.now().timestamp() - older_than_s
        aborted = 0
        with self._map_errors(""):
            pages = self._client.get_paginator("list_multipart_uploads")
            for page in pages.paginate(Bucket=self._location.bucket, Prefix=self._location.prefix):
                for one in page.get("Uploads", ()):
                    if one["Initiated"].timestamp() >= before:
                        continue
                    upload = {"Bucket": self._location.bucket, "Key": one["Key"], "UploadId": one["UploadId"]}
                    self._client.abort_multipart_upload(**upload)
                    aborted += 1
        return aborted

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _name(self, key: str) -> str:
        return f"{self._location.prefix}{key[:2]}/{key}"

    def _require_size(self, key: str) -> int:
        size = self.size(key)
        if size is None:
            raise BlobMissing(f"There is no object {self._name(key)}.")
        return size

    def _body(self, key: str, start: int, length: int) -> Iterator[bytes]:
        wanted = f"bytes={start}-{start + length - 1}"
        answer = self._client.get_object(Bucket=self._location.bucket, Key=self._name(key), Range=wanted)
        body = answer["Body"]
        try:
            yield from body.iter_chunks(READ_BYTES)
        finally:
            body.close()

    @contextmanager
    def _map_errors(self, key: str) -> Iterator[None]:
        from boto3.exceptions import Boto3Error  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        try:
            yield
        except ClientError as error:
            raise self._fault(key, error) from error
        except (BotoCoreError, Boto3Error, HTTPError, OSError) as error:
            if isinstance(error.__context__, ClientError):  # the transfer manager wraps the server's error
                raise self._fault(key, error.__context__) from error
            raise self._unavailable(str(error)) from error

    def _fault(self, key: str, error: Any) -> Fault:
        said = error.response.get("Error", {})
        code = str(said.get("Code", ""))
        if code in _MISSING_CODES:
            return BlobMissing(f"There is no object {self._name(key)}.")
        if code in {"InvalidRange", "416"}:
            return BlobMissing(f"The object {self._name(key)} is too short.")
        message = f"{said.get('Message') or 'no message'} ({code})"
        if code == "NoSuchBucket":
            return self._unavailable(
                message, advice=f"Create the bucket {self._location.bucket}, or correct the setting."
            )
        if code in _DENIED_CODES:
            return self._unavailable(message, advice="Check the access key and its permissions in the bucket.")
        return self._unavailable(message)

    def _unavailable(self, why: str, advice: str = "Try again when the store answers; nothing was recorded.") -> Fault:
        where = self._location.endpoint or "S3"
        return ArtifactsUnavailable(f"The artifact store at {where} failed: {why}.", advice=advice)
