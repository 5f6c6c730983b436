"""`codesdk demo`: runs one agent's calls end to end and verifies the record."""
