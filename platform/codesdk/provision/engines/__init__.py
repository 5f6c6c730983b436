"""Docker engines: find, install, start, stop."""
