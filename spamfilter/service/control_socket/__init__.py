"""The control socket of a running relay, in the configuration its feedback socket: marks, and questions of `doctor`."""
