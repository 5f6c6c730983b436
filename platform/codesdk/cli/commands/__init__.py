"""The typer commands: options and help. Their code is in the packages next to this one."""
