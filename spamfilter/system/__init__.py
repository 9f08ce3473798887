"""This machine: paths, rights, processes, the terminal, the log, certificates and compression.

Any other daemon could use it: nothing here knows what mail or spam is.
Imports: only errors. Start with paths, which says where configuration and state are.
"""
