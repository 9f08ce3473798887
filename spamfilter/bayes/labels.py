"""The two classes of mail that can be taught, and who teaches them where no person does."""

from typing import Literal, get_args

Label = Literal["ham", "spam"]
LABELS: tuple[Label, ...] = get_args(Label)
OTHER: dict[Label, Label] = {"ham": "spam", "spam": "ham"}

BULK = "train"
"""Bulk training: its labels are data, not somebody's judgement of a verdict."""
AUTOMATIC = "automatic"
"""Configured rules, whose learnings anybody may correct and which correct nobody."""
CANARY = "canary"
"""What `doctor` teaches and takes back, to see that both work."""
NOBODYS = (BULK, AUTOMATIC, CANARY)
"""Sources whose learnings anybody's mark replaces: no person has spoken."""
