"""The synchronous client: generated from `codesdk.client.aio` by `scripts/sync_client.py`, but for `concurrency`."""
