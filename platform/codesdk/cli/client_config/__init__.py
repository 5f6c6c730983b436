"""`codesdk connect`: prints or writes the configuration that connects an agent's client to a session."""
