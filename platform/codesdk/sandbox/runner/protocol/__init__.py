"""The wire format and the egress multiplexer, used by both sides."""
