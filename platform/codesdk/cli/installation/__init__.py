"""Commands on the installation as a whole."""
