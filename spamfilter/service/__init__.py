"""The processes of a running relay: start, workers, reload and stop; the control socket; the metrics endpoint.

The supervisor starts the others; workers carry mail; one keeper follows the ledger and has the control socket.
Imports: every room from errors to reports. Start with daemon, then worker, which wires one process.
"""
