"""Process trees: start, output, limits, signals, end."""
