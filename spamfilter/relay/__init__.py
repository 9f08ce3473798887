"""The way of a mail from the client to the next hop: received, judged, delivered, journalled.

No mail is lost: 250 only after the next hop's 250, and a failure of ours is a 4xx. smtp/ is the client's side, session/
the transaction, next_hops/ the server's side, limits/ the limits of clients. A new front end or next hop is a module
and a row of a table.
Imports: errors, system, mail, bayes, stores, config and learning. Start with docs/flow.md, then delivery.
"""
