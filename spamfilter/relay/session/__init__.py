"""The transactions of a transparent proxy with one client, without a transport: arguments of commands in, replies out.

A front end owns the connection and its timers, and calls the methods of `Session`. Commands go to the next hop
unchanged, with all their parameters, and its replies come back unchanged.

Guarantee: only cancellation is raised, and the errors by which `data` learns that the client has hung up. Any other
exception is answered with 451. A temporary failure is never answered with a 5xx, nor are the commands pipelined behind
it.
"""

from spamfilter.relay.session.greeting import OK
from spamfilter.relay.session.mail import LEAVING, Dropped, HasRoom, Session

__all__ = ["LEAVING", "OK", "Dropped", "HasRoom", "Session"]
