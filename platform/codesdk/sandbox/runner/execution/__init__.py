"""Execs: starting programs, output, limits, signals, and ending their process trees."""
