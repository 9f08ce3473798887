"""What was learnt elsewhere, taken over, and what was learnt here, written for others.

Guarantee: a file is taken over whole or not at all; counts are one entry of the ledger, which can be undone.
Imports: what learning imports. Start with imports; dumps reads the files of other filters, portable our own.
"""
