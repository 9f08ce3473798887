"""The processes of a running relay: start, workers, reload, end; and the socket for marks and `doctor`.

One keeper holds the database and the control socket, each worker carries mail.
Imports: every room from errors to reports. Start with daemon, then worker, which wires one process.
"""
