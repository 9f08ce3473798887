"""The account of a fault: what the clients heard of each message against what is at the next hop.

The one honest exception: from the moment the next hop has the whole message until the client has our 250, nobody can
know. Whoever breaks off in between (next hop, relay, client, or a limit of time), the client hears 4xx or nothing and
sends again, so the message may be there twice: RFC 1047. A test must name such a message `doubtful` beforehand; no
other may be doubled, and not even a doubtful one may be lost, or be there after a 5xx.
"""

import itertools
import os
from collections.abc import Callable, Sequence

from tests.faults.case import Tally, case
from tests.faults.client import RECIPIENTS, Answer, Client, mail_of
from tests.faults.hop import Hop, MaildirHop

_numbers = itertools.count(1)


class Account:
    """All messages of one test. port: the relay's that the last one was sent to. heal: make the next hop behave.

    connect: a client of the relay's door.
    """

    def __init__(self, hop: Hop | MaildirHop) -> None:
        self.hop = hop
        self.answers: dict[str, list[Answer]] = {}
        self.port = 0
        self.connect: Callable[[int], Client] = Client
        self.heal = hop.heal
        self._doubtful: set[str] = set()
        case().add_account(self)

    def name(self, doubtful: bool = False) -> str:
        """The name of a new message, which nobody has an answer for yet."""
        name = f"m{next(_numbers)}-{os.getpid()}"
        self.answers[name] = []
        if doubtful:
            self._doubtful.add(name)
        return name

    def note(self, name: str, answer: Answer) -> Answer:
        """What a client heard in the end of one attempt."""
        self.answers[name].append(answer)
        if answer.code == 250:
            case().mail_passed()
        return answer

    def send(self, port: int, name: str = "", recipients: Sequence[str] = RECIPIENTS, doubtful: bool = False) -> Answer:
        """Send a message, a new one unless named, over a connection of its own."""
        self.port = port
        name = name or self.name(doubtful)
        try:
            client = self.connect(port)
        except OSError:
            return self.note(name, Answer(None))
        with client:
            if client.greeting.code != 220:
                return self.note(name, client.greeting)
            return self.note(name, client.deliver(mail_of(name), recipients))

    def doubt_last(self) -> None:
        """The fault came at a moment of its own choice: the last message may have been beyond its dot."""
        name = list(self.answers)[-1]
        if self.answers[name][-1].code != 250:
            self._doubtful.add(name)

    def settle(self) -> None:
        """Compare what was promised with what is there."""
        wrong = [line for name in self.answers for line in self._problems(name)]
        known = [kept.name for kept in self.hop.kept if kept.name in self.answers]
        assert not wrong, "\n".join(wrong)
        assert set(known) <= set(self.answers)

    def _problems(self, name: str) -> list[str]:
        codes = [answer.code for answer in self.answers[name]]
        accepted = [answer for answer in self.answers[name] if answer.code == 250]
        copies = self.hop.copies(name)
        said = f"{name}: the client heard {codes}, the next hop has {len(copies)}"
        if name in self._doubtful:
            if not len(accepted) <= len(copies) <= len(accepted) + 1 or any(code and code >= 500 for code in codes):
                return [f"{said}, although only one attempt was doubtful"]
        elif len(copies) != len(accepted):
            return [said]
        promised = {answer.recipients for answer in accepted}
        if accepted and {copy.recipients for copy in copies} != promised:
            return [f"{said}, for {[copy.recipients for copy in copies]} instead of {promised}"]
        return []

    def tally(self) -> Tally:
        """All of it in figures."""
        tally = Tally(len(self.answers), sum(map(len, self.answers.values())))
        for name, answers in self.answers.items():
            accepted = sum(answer.code == 250 for answer in answers)
            more = len(self.hop.copies(name)) - accepted
            tally.lost += max(-more, 0)
            tally.twice += name in self._doubtful and more > 0 and accepted > 0
            tally.doubled += max(more - (name in self._doubtful), 0)
        return tally

    def recover(self) -> None:
        """The fault is over: where the relay still runs, the next mail passes."""
        self.heal()
        if self.send(self.port).code is not None:
            last = list(self.answers)[-1]
            assert self.answers[last][-1].code == 250, f"after the fault: {self.answers[last][-1].raw!r}"

    def finish(self, port: int) -> None:
        """Settle; then every client that keeps its message sends it again, which must do, and settle once more."""
        self.settle()
        for name, answers in self.answers.items():
            last = answers[-1].code if answers else None
            if last is None or 400 <= last < 500:
                again = self.send(port, name)
                assert again.code == 250, f"{name}: sent again after the fault, the client heard {again.raw!r}"
        self.settle()
