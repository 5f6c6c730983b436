"""Session resources."""
