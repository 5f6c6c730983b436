"""How a sandbox is isolated, as pure data: engine options, grants, quotas and kernel facts."""
