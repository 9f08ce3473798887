"""The rules by which counts were made; counts made by other rules cannot be used."""

from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.bayes.voices import Voices

RULES = "rules"
"""The name of the database's setting with these rules."""


def rules(voices: Voices) -> dict[str, object]:
    """What the counts depend on: the version of the tokenizer, and the likelihood of each voice."""
    return {"tokenizer": TOKENIZER, "voices": {voice.name: voice.likelihood.name for voice in voices}}


def rules_text(kept: object) -> str:
    """The rules of a database for people; a newer version may have written others than `rules` gives."""
    if not isinstance(kept, dict) or not isinstance(kept.get("voices"), dict):
        return str(kept)
    voices = ", ".join(f'{voice} by "{likelihood}"' for voice, likelihood in kept["voices"].items())
    return f"{voices} (tokenizer {kept.get('tokenizer')})"
