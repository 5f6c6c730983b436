"""The sandbox port in memory, for unit tests: real files, scripted execs, no isolation."""
