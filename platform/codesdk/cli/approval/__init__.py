"""Commands on approvals and grants."""
