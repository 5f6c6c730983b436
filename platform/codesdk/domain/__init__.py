"""Pure types and state machines that every layer shares; no effects, no imports from above."""
