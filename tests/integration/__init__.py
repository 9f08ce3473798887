"""Whole servers against each other: Postfix, Exim and the relay, each a process of its own on loopback."""
