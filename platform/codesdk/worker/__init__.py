"""The sandbox worker: one process per engine. Claims its host's calls and runs them in the sandboxes it owns."""
