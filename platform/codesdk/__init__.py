"""CodeSDK: the tool calls of AI agents, governed by policy, run in Docker sandboxes, recorded in a log."""
