"""Tests of a bundle: cases, tables and mutation testing."""
