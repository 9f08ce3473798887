"""This machine: paths, rights, processes, the terminal, the log, certificates and compression.

Everything here would be of use to any other daemon; nothing knows what mail or spam is.
Imports: nothing of this package but errors. Start with paths, which says where every file of an installation lies.
"""
