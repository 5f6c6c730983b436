"""Lists of tools and prompts, and their change notifications."""
