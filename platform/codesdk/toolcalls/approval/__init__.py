"""Approvals of calls: what they bind, their summary, their flow, and their deferral until a worker has looked."""
