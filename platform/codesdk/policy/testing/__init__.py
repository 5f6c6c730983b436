"""Policy tests: cases, tables and mutation testing."""
