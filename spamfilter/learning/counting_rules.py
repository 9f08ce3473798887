"""The rules by which counts were made: counts of other rules mean other things."""

from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.bayes.voices import Voices

RULES = "rules"
"""The setting of a database that has them."""


def rules(voices: Voices) -> dict[str, object]:
    """What the counts of these voices depend on: the tokenizer, and the update rule of each voice."""
    return {"tokenizer": TOKENIZER, "voices": {voice.name: voice.likelihood.name for voice in voices}}


def rules_text(kept: object) -> str:
    """`rules` for people; what a database has is JSON, and a newer version may have written it."""
    if not isinstance(kept, dict) or not isinstance(kept.get("voices"), dict):
        return str(kept)
    voices = ", ".join(f'{voice} by "{likelihood}"' for voice, likelihood in kept["voices"].items())
    return f"{voices} (tokenizer {kept.get('tokenizer')})"
