"""The database rows of sandboxes."""
