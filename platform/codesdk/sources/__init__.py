"""Other people's MCP servers: started in sandboxes of their own or spoken to from here, held to what was accepted."""
