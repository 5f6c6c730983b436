"""Snapshots of workspaces, and events for changed files."""
