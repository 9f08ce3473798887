"""Mail over SMTP, on aiosmtpd: a transparent proxy in front of the next hop.

server.py adapts aiosmtpd's class to a proxy, client.py has limits and the end of a connection, dialogue.py the
commands, incoming.py the mail after DATA. The transaction itself is in ../session, new connections in ../front_ends.py.
"""
