"""Commands on sandboxes and their images."""
