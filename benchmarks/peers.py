"""Other people's filters as contenders: bogofilter's own program, and scikit-learn's multinomial naive Bayes.

They read the mail itself, which examples carry beside their tokens as the one word of a voice named `mail`. Header
fields that say what other filters thought are taken out first, as our own parser does.
"""

import math
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spamfilter.bayes.labels import Label
from spamfilter.bayes.model import Score
from spamfilter.bayes.voices import Voices, VoiceTokens, view
from spamfilter.evaluation.contenders import Examples
from spamfilter.evaluation.protocols import Example
from spamfilter.mail.header import dropped
from spamfilter.mail.mailboxes import Mail
from spamfilter.mail.message import parse

MAIL = "mail"
_FIELDS = re.compile(rb"\n(?![ \t])")


def with_mail(mails: Iterable[tuple[Label, Mail]], voices: Voices) -> list[Example]:
    """Labelled mails as examples for our contenders and for others."""

    def read(mail: Mail) -> VoiceTokens:
        data = stripped(mail.read())
        return {**view(voices, parse(data)), MAIL: {data: 1}}

    return [Example(mail.name, label, lambda mail=mail: read(mail)) for label, mail in mails]  # type: ignore[misc]


def stripped(mail: bytes) -> bytes:
    """A mail without its mbox line and the header fields of other filters and mailboxes."""
    mail = mail.replace(b"\r\n", b"\n")
    if mail.startswith((b"From ", b">From ")):
        mail = mail.partition(b"\n")[2]
    head, empty, body = mail.partition(b"\n\n")
    fields = (field for field in _FIELDS.split(head) if not dropped(field.partition(b":")[0].rstrip().lower()))
    return b"\n".join(fields) + empty + body


class Bogofilter:
    """bogofilter, a process for each look and for each learning, with the defaults it comes with."""

    name = "bogofilter"

    def __init__(self) -> None:
        program = shutil.which("bogofilter")
        if program is None:
            raise FileNotFoundError("bogofilter is not installed: apt-get install bogofilter")
        memory = Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(prefix="bogofilter-", dir=memory if memory.is_dir() else None)
        self._command = [program, "-C", "--db-transaction=no", "-d", self._folder.name]
        self._learnt = False

    @classmethod
    def version(cls) -> str:
        said = subprocess.run(["bogofilter", "-V"], capture_output=True, text=True, check=True).stdout
        return said.splitlines()[0]

    def _run(self, mail: bytes, *options: str) -> bytes:
        done = subprocess.run([*self._command, *options], input=mail, capture_output=True, check=False)
        if done.returncode not in (0, 1, 2):
            raise RuntimeError(f"bogofilter: {done.stderr.decode(errors='replace')}")
        return done.stdout

    def score(self, tokens: VoiceTokens) -> Score:
        if not self._learnt:
            return Score(0.0, 0.5)
        p = float(self._run(_mail(tokens), "-TT"))
        tiny = 1e-300
        return Score(math.log(max(p, tiny)) - math.log(max(1 - p, tiny)), p)

    def learn(self, tokens: VoiceTokens, label: Label) -> None:
        self._run(_mail(tokens), "-s" if label == "spam" else "-n")
        self._learnt = True

    def train(self, examples: Callable[[], Examples], rounds: int) -> None:
        for tokens, label in examples():
            self.learn(tokens, label)


class ScikitMultinomial:
    """MultinomialNB over CountVectorizer, by partial_fit; its vocabulary is that of the whole stream."""

    name = "scikit-learn MultinomialNB"

    def __init__(self, vectorizer: Any) -> None:
        from sklearn.naive_bayes import MultinomialNB

        self._vectorizer = vectorizer
        self._model: Any = MultinomialNB()
        self._learnt = False

    @classmethod
    def version(cls) -> str:
        import sklearn

        return f"scikit-learn {sklearn.__version__}"

    @classmethod
    def vectorizer(cls, examples: Sequence[Example]) -> Any:
        """A CountVectorizer that knows the words of these messages."""
        from sklearn.feature_extraction.text import CountVectorizer

        texts = (_mail(example.read()) for example in examples)
        return CountVectorizer(encoding="utf-8", decode_error="replace").fit(texts)

    def score(self, tokens: VoiceTokens) -> Score:
        if not self._learnt:
            return Score(0.0, 0.5)
        ham, spam = self._model.predict_joint_log_proba(self._vectorizer.transform([_mail(tokens)]))[0]
        odds = float(spam - ham)
        return Score(odds, 1 / (1 + math.exp(-max(-700.0, min(700.0, odds)))))

    def learn(self, tokens: VoiceTokens, label: Label) -> None:
        row = self._vectorizer.transform([_mail(tokens)])
        self._model.partial_fit(row, np.array([label]), classes=np.array(["ham", "spam"]))
        self._learnt = True

    def train(self, examples: Callable[[], Examples], rounds: int) -> None:
        for tokens, label in examples():
            self.learn(tokens, label)


def _mail(tokens: VoiceTokens) -> bytes:
    (mail,) = tokens[MAIL]
    return mail
