"""Puts bundles into force: active bundles, versions, pins, shadow evaluation and session rules."""
