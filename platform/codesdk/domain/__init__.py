"""Pure types and state machines that every layer shares. No side effects, no imports from higher layers."""
