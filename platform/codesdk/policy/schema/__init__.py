"""The policy language: what bundle files may contain."""
