"""Grants: an approver's yes to further calls, with a time limit and a number of uses."""
