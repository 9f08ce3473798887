"""The web page of a relay, served by a separate process: pages of HTML, and an API of JSON.

Guarantee: the relay loads none of this code. Every action is a POST with the stamp of its session, by an account whose
role allows it, and is in the ledger under the account's name. An error is shown as one sentence, never as a traceback.
Imports: every room from errors to doctor. Start with server, which has the table of pages; then site/, which a page is
given, and messages for one page.
"""
