"""Where artifacts are kept, how large one may be, and how long closed sessions stay."""

from __future__ import annotations

from pydantic import Field

from codesdk.settings.group import SettingsGroup


class ArtifactSettings(SettingsGroup):
    """A directory, or a bucket of an S3-compatible server."""

    artifacts_url: str = ""
    """`s3://bucket/prefix`; empty: `artifacts` in the data directory."""
    s3_endpoint: str = ""
    """Of an S3-compatible server; empty: Amazon's."""
    s3_region: str = ""
    s3_access_key: str = ""
    """Empty: environment, profile or instance role, as the AWS tools look for them."""
    s3_secret_key: str = Field(default="", repr=False)
    artifact_max_bytes: int = Field(default=5 * 1024**3, gt=0)
    """Bytes of one artifact."""
    retention_days: float = Field(default=0.0, ge=0)
    """Days after which a closed session is removed, with its log and artifacts; 0: never."""
