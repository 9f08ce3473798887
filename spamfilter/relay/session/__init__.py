"""The transactions of a transparent proxy with one client, without a transport: arguments of commands in, replies out.

A front end owns the wire and its timers, and calls the methods of `Session`. Commands go to the next hop as they came,
with all their parameters, and its replies come back as they are.

Guarantee: nothing is raised but cancellation, and what `data` hears of a client that is gone. An exception in here is a
451 without details; what fails for a time is never made a 5xx, nor is what the client has pipelined behind it.
"""

from spamfilter.relay.session.greeting import OK
from spamfilter.relay.session.mail import LEAVING, HasRoom, NoRoom, Session, TooLarge

__all__ = ["LEAVING", "OK", "HasRoom", "NoRoom", "Session", "TooLarge"]
