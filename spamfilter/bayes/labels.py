"""The two classes that mail is labelled with, and the sources of labels that are not a person's."""

from typing import Literal, get_args

Label = Literal["ham", "spam"]
LABELS: tuple[Label, ...] = get_args(Label)
EntryLabel = Label | Literal["import"]
IMPORT: Literal["import"] = "import"
"""The label of a ledger entry with counts of both classes, which another filter or database has learnt; its source,
too."""
OTHER: dict[Label, Label] = {"ham": "spam", "spam": "ham"}

BULK = "train"
"""Bulk training: its labels are data, not a judgement of a verdict."""
AUTOMATIC = "automatic"
"""Configured rules: any user may correct what they learn, and they correct nothing."""
COUNTERPART = "counterpart"
"""Ham that is learnt beside a mark of spam, and taken back with it: the source, and the name of its author. See
`learning.counterparts`."""
CANARY = "canary"
"""Probes of `doctor`, which learn a mail and take it back, to see that both work."""
NOBODYS = (BULK, AUTOMATIC, COUNTERPART, CANARY, IMPORT)
"""Sources that are no person: any user's mark replaces what they have learnt."""
