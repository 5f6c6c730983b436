"""Finds rules that can't work as their author intended."""
