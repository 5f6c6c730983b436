"""`codesdk connect`: how each agent's client is told about a session, written into its own configuration or printed."""
