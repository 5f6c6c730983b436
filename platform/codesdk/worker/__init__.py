"""The sandbox worker: one process per engine; takes its host's calls and runs them in the sandboxes that it owns."""
