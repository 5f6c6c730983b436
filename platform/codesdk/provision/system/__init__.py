"""Access to the machine: commands, packages, processes."""
