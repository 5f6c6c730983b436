"""How a sandbox is isolated, as data without I/O: engine options, grants, quotas and kernel facts."""
