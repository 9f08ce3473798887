"""The rules by which counts were made; counts made by other voices or likelihoods cannot be used."""

from spamfilter.bayes.tokens import TOKENIZER
from spamfilter.bayes.voices import Voices, everybodys

RULES = "rules"
"""The name of the database's setting with these rules."""
IMPORTED_VOICES = "imported"
"""The name of the setting with the filters that counts were imported of."""


def rules(voices: Voices) -> dict[str, object]:
    """What the counts depend on: the version of the tokenizer, and the likelihood of each voice; and what their
    calibration does: which revision of its formula. Imported voices, and that of groups, come and go beside them."""
    voices = everybodys(voices)
    revised = {voice.likelihood.name: voice.likelihood.revision for voice in voices if voice.likelihood.revision > 1}
    return {
        "tokenizer": TOKENIZER,
        "voices": {voice.name: voice.likelihood.name for voice in voices},
        **({"revisions": revised} if revised else {}),
    }


def usable(kept: object, voices: Voices) -> bool:
    """Whether counts made by the rules `kept` can be used by these voices.

    An older tokenizer has found a few other words; until `spamfilter retrain` the filter only knows less. Under another
    revision of a formula its probabilities are not calibrated until then.
    """
    if not isinstance(kept, dict):
        return False
    asked = rules(voices)
    return kept.get("voices") == asked["voices"] and kept.get("tokenizer", TOKENIZER + 1) <= TOKENIZER


def rules_text(kept: object) -> str:
    """The rules of a database for people; a newer version may have written others than `rules` gives."""
    if not isinstance(kept, dict) or not isinstance(kept.get("voices"), dict):
        return str(kept)
    revised = kept.get("revisions")
    revisions = revised if isinstance(revised, dict) else {}
    voices = ", ".join(
        f'{voice} by "{likelihood}"' + (f", revision {revisions[likelihood]}" if likelihood in revisions else "")
        for voice, likelihood in kept["voices"].items()
    )
    return f"{voices} (tokenizer {kept.get('tokenizer')})"
