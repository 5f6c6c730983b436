"""Limits the bytes of a tenant's uploads that have begun and not ended: its quota counts only complete ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from codesdk.domain.ids import TenantId
from codesdk.errors import Fault


class TooManyUploadBytes(Fault):
    """The tenant's unfinished uploads have more bytes than they may have."""

    code = "TOO_MANY_UPLOAD_BYTES"
    retryable = True
    status = 429
    retry_after_s = 15.0


class UnfinishedUploads:
    """The unfinished uploads of one process. Used on its event loop."""

    def __init__(self, of_tenant: int) -> None:
        """`of_tenant`: bytes that a tenant's unfinished uploads may have together; 0: no limit."""
        self._of_tenant = of_tenant
        self._bytes = Counter[TenantId]()

    @contextmanager
    def upload(self, tenant: TenantId) -> Iterator[Callable[[int], None]]:
        """Count an upload within the block. Yields what to call with the size of each piece before it is stored.

        That raises TooManyUploadBytes if the piece is above the limit.
        """
        received = 0

        def receive(size: int) -> None:
            nonlocal received
            if self._of_tenant and self._bytes[tenant] + size > self._of_tenant:
                raise TooManyUploadBytes(
                    f"The tenant's unfinished uploads would have more than {self._of_tenant} bytes.",
                    advice="Send fewer or smaller ones at once, or raise `CODESDK_UPLOAD_BYTES_OF_TENANT`.",
                    details={"limit": self._of_tenant},
                )
            self._bytes[tenant] += size
            received += size

        try:
            yield receive
        finally:
            self._bytes[tenant] -= received
            if not self._bytes[tenant]:
                del self._bytes[tenant]
