"""Pure types and state machines that every layer shares. No effects, no imports from above."""
