"""Files of the workspace: operations, watches, snapshots, quota."""
