"""Ways by which nobody in person teaches; each is the source of ledger entries."""

BULK = "train"
"""Bulk training: its labels are data, not somebody's judgement of a verdict."""
AUTOMATIC = "automatic"
"""Configured rules, whose learnings anybody may correct and which correct nobody."""
CANARY = "canary"
"""What `doctor` teaches and takes back, to see that both work."""
NOBODYS = (BULK, AUTOMATIC, CANARY)
"""Sources whose learnings anybody's mark replaces: no person has spoken."""
