"""The limits of the configuration, each exceeded at a running relay: the reply, the metrics, the log."""
