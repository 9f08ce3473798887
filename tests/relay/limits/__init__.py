"""The limits of the configuration, each gone over at a running relay: the answer, the metrics, the log."""
