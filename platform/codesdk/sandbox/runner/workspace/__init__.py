"""The workspace: file operations, watches, snapshots, quota."""
