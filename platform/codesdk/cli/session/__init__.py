"""Commands on sessions."""
