"""The asynchronous client. `scripts/sync_client.py` generates `codesdk.client.sync` from it."""
