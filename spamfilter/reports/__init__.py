"""The report: figures from journal and ledger, as text, as HTML, as JSON, and as a mail.

Imports: every room from errors to relay. Start with report, which gathers the figures; text and html show them.
"""
