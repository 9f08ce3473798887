"""The socket of a running relay: marks of local users, the questions of `doctor`, and what it answers."""
