"""Commands on session logs."""
