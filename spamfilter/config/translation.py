"""Messages to users in their language. A language is one file in translations/: English sentence -> its translation.

English needs no file. `{name}` in a sentence is replaced by a value.
"""

import functools
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "translations"
LANGUAGES = ("en", *sorted(path.stem for path in FOLDER.glob("*.toml")))


def known_language(text: str) -> str:
    if text not in LANGUAGES:
        raise ValueError(f"not a language of the messages to users; known: {', '.join(LANGUAGES)}")
    return text


@functools.cache
def catalog(language: str) -> Mapping[str, str]:
    """English sentence -> translation; empty for English."""
    if language == "en":
        return {}
    return {key: str(text) for key, text in tomllib.loads((FOLDER / f"{language}.toml").read_text("utf-8")).items()}


def translator(language: str) -> Callable[..., str]:
    """A function from an English sentence, and values for its {names}, to the sentence in this language."""
    known = catalog(language)

    def translated(sentence: str, **values: object) -> str:
        return known.get(sentence, sentence).format(**values)

    return translated
