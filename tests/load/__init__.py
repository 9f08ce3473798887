"""The relay under load: Postfix' smtp-source before it, a sink behind that notes each message, a client that watches.

Guarantee: the account is settled for each message by itself. Each has a recipient address of its own, which the sink
notes before it says 250, and smtp-source ends with an error unless each of its messages was answered with 250.
"""
