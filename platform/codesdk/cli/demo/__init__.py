"""`codesdk demo`: one agent's calls through everything, with the record checked at the end."""
