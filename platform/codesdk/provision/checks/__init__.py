"""Checks of the machine and the installation for `codesdk doctor`."""
