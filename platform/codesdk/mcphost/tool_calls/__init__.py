"""Tool calls from request to answer."""
