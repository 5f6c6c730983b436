"""What the worker reads from workspaces: snapshots and changed files."""
