"""The two classes of mail that can be taught."""

from typing import Literal, get_args

Label = Literal["ham", "spam"]
LABELS: tuple[Label, ...] = get_args(Label)
OTHER: dict[Label, Label] = {"ham": "spam", "spam": "ham"}
