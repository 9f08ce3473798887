"""The journal and the ledger to a report: figures, text, HTML, and the mail that brings it.

Imports: every room from errors to relay. Start with report, which gathers the figures; text and html show them.
"""
