"""Allowed and blocked senders: decisions as values, forged proofs, and a relay that obeys."""
