"""The relay broken on purpose, as a real process between a real client and a next hop that misbehaves.

Guarantee: after each fault the account is settled: what was answered with 250 is at the next hop exactly once, all
else is still the client's, and what was refused is nowhere. `account.py` names the one honest exception.
"""
