"""Mail by the milter protocol: the mail server asks about each mail, and delivers it itself.

packets.py is the protocol as bytes and values, session.py the mails of a connection, incoming.py a mail that comes,
changes.py what is done to its header, connection.py the wire.
"""
