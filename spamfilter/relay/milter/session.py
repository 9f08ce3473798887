"""The mails of one connection of a mail server, without the connection: packets in, packets out.

Guarantee: a mail that is not judged in the end, or that could not be kept in quarantine, is deferred or rejected, and
never lost; that the mail server may drop it is said only of a mail that is kept, learnt or a probe.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack

from spamfilter.mail.tagging import header_end
from spamfilter.relay.delivery import hand_over
from spamfilter.relay.envelope import Transaction
from spamfilter.relay.envelope_paths import MAX_PATH, decoded, has_control, size_of
from spamfilter.relay.limits.budget import Reservation
from spamfilter.relay.limits.connections import hash_of
from spamfilter.relay.local_delivery import end_here, purpose_of, refusal
from spamfilter.relay.milter import packets
from spamfilter.relay.milter.changes import changes
from spamfilter.relay.milter.incoming import MOST_FORGED, Incoming
from spamfilter.relay.milter.packets import Actions, Offer, ProtocolError, Steps
from spamfilter.relay.next_hops import Conversation, Reply
from spamfilter.relay.relay import Relay
from spamfilter.relay.session import OK
from spamfilter.relay.session.attempt import Attempt
from spamfilter.system.escaping import printable

NEEDED = Actions.ADD_HEADERS | Actions.CHANGE_HEADERS
LEFT_OUT = Steps.NO_HELO | Steps.NO_HEADER_END | Steps.NO_UNKNOWN | Steps.NO_DATA
SILENT = Steps.SILENT_CONNECT | Steps.SILENT_MAIL | Steps.SILENT_HEADER | Steps.SILENT_BODY
"""Nothing is said before the end of a mail, but perhaps to a recipient, so the mail server need not wait."""
NO_ADDRESS = Reply.of(f"501 5.5.4 An address of more than {MAX_PATH} bytes, or with control characters")
LATER = Reply.of("451 4.3.5 The settings have changed; send this mail again on another connection")
"""To a mail of which some recipients are refused, where the mail server does not ask for each: it asks for each on a
connection that began after feedback addresses were set."""
FORGED = Reply.of(f"550 5.6.0 More than {MOST_FORGED} header fields that only a spam filter may add")


class MailServer(Conversation):
    """The mail server itself as the next hop: it keeps its mail, and gets the changes to it.

    changes: packets, None if the mail does not go on.
    """

    keywords: Mapping[str, str] = {}

    def __init__(self, mail: bytes, forged: Sequence[bytes], queue_id: bytes, *, leading_space: bool) -> None:
        self.changes: list[bytes] | None = None
        self._header = mail[: header_end(mail)]
        self._forged = forged
        self._queue_id = queue_id
        self._leading_space = leading_space

    async def command(self, line: bytes) -> Reply:
        return OK

    async def data(self, parts: Sequence[bytes | memoryview]) -> Reply:
        self.changes = changes(self._forged, self._header, bytes(parts[0]), leading_space=self._leading_space)
        queue_id = f", queue id {printable(self._queue_id.decode('ascii', 'replace'), 40)}" if self._queue_id else ""
        return Reply.of(f"250 2.0.0 Ok: goes on in the mail server{queue_id}")

    async def forget(self) -> None:
        return


class Session:
    """peer: address of the mail server. proven: the kernel says that it is that of this host. gone: whether it has
    hung up. closed: whether it has said that it ends. incoming: the mail that comes, None before its first field."""

    def __init__(self, relay: Relay, peer: str, *, proven: bool, gone: Callable[[], bool]) -> None:
        self.closed = False
        self.transaction: Transaction | None = None
        self.incoming: Incoming | None = None
        self._relay = relay
        self._peer = peer
        self._proven = proven
        self._gone = gone
        self._steps: Steps | None = None
        self._silent = packets.UNANSWERED
        self._client = packets.UNKNOWN
        self._login = b""
        self._queue_id = b""
        self._began = 0.0
        self._held = ExitStack()
        self.clear()

    def obey(self, command: bytes, data: bytes) -> bytes:
        """The answer to any packet but that at the end of a mail. Raises ProtocolError."""
        if command == packets.NEGOTIATE:
            return self._negotiate(data)
        if self._steps is None:
            raise ProtocolError("a command before the negotiation")
        if command not in _METHODS and command not in packets.IGNORED:
            raise ProtocolError(f"an unknown command, {printable(repr(command))}")
        if command in _METHODS and (reply := _METHODS[command](self, data)) is not None:
            return _said(reply)
        return b"" if command in self._silent else packets.packet(packets.CONTINUE)

    async def end(self, data: bytes) -> bytes:
        """The answer at the end of a mail. Raises ProtocolError."""
        transaction, attempt = self.transaction, self._attempt
        if transaction is None or attempt is None or not (transaction.recipients or self._refused):
            raise ProtocolError("the end of a mail without sender and recipient")
        if data:
            self._body(data)
        incoming, refused, queue_id = self._text(), self._refused, self._queue_id
        held = self._held.pop_all()
        self.clear()
        with held:
            loop = asyncio.get_running_loop()
            self._relay.metrics.observe("stage_seconds", loop.time() - self._began, "receive")
            mail = b"" if incoming.limit else incoming.mail()
            if refused is not None and refused is not NO_ADDRESS and transaction.recipients:
                refused = LATER
            if incoming.limit:
                refused = self._relay.over(incoming.limit, self._client)
            elif len(incoming.forged) > MOST_FORGED:
                refused = FORGED
            if refused is not None:
                attempt.heard(refused)
                attempt.record(self._relay)
                return self._answer(refused)
            attempt.record(self._relay, in_part=True)
            server = MailServer(mail, incoming.forged, queue_id, leading_space=self._leading_space)
            if transaction.purpose == "relay":
                reply = await hand_over(self._relay, server, transaction, mail, self._gone)
            else:
                reply = await end_here(self._relay, transaction, mail, self._gone)
            return self._answer(reply, server.changes)

    def clear(self) -> None:
        """Release what is held for a mail that will not come to its end."""
        self._held.close()
        self.transaction = self.incoming = None
        self._attempt: Attempt | None = None
        self._refused: Reply | None = None
        self._queue_id = b""

    @property
    def _leading_space(self) -> bool:
        return self._steps is not None and bool(self._steps & Steps.LEADING_SPACE)

    def _answer(self, reply: Reply, changed: Iterable[bytes] | None = None) -> bytes:
        self._relay.replied(reply.code)
        if not reply.positive:
            return _said(reply)
        if changed is None:
            return packets.packet(packets.DISCARD)
        return b"".join((*changed, packets.packet(packets.CONTINUE)))

    def _negotiate(self, data: bytes) -> bytes:
        offer = Offer.of(data)
        if offer.version not in packets.VERSIONS:
            raise ProtocolError(f"version {offer.version} of the protocol")
        if offer.actions & NEEDED != NEEDED:
            raise ProtocolError("no header fields may be added or changed")
        wanted = LEFT_OUT | SILENT | Steps.LEADING_SPACE
        feedback = self._relay.feedback
        if not (feedback.spam_addresses or feedback.ham_addresses):
            wanted |= Steps.SILENT_RCPT
        self._steps = offer.steps & wanted
        silent = {command for command, step in packets.SILENT.items() if step & self._steps}
        self._silent = packets.UNANSWERED | silent
        return Offer(offer.version, NEEDED, self._steps).packet()

    def _names(self, data: bytes) -> None:
        command, found = packets.macros(data)
        if command == packets.MAIL:
            self._login = found.get(b"auth_authen", b"")
        self._queue_id = found.get(b"i", self._queue_id)

    def _connect(self, data: bytes) -> None:
        self.clear()
        self._client = packets.client_address(data)

    def _mail(self, data: bytes) -> None:
        queue_id = self._queue_id
        self.clear()
        self._queue_id = queue_id
        sender, *parameters = packets.texts(data)
        path = _path(sender)
        # The next mail on this connection may come without.
        login, self._login = self._login, b""
        trusted = self._relay.trusts(self._client)
        self.transaction = Transaction(
            path,
            self._client,
            own=trusted or bool(login),
            authenticated=bool(login),
            proven=self._proven and bool(login),
            peer=self._peer,
            began=asyncio.get_running_loop().time(),
            size=size_of(f"FROM:<> {decoded(b' '.join(parameters))}"),
            origin=0 if trusted else hash_of(self._client),
            login=login,
        )
        self._attempt = Attempt(self._client, decoded(path), self.transaction.size)
        self._refused = None if _is_sound(path) else NO_ADDRESS

    def _rcpt(self, data: bytes) -> Reply | None:
        if self.transaction is None or self._attempt is None:
            raise ProtocolError("a recipient without a sender")
        path = _path(packets.texts(data)[0])
        recipient = decoded(path)
        purpose = purpose_of(self._relay, recipient)
        if not _is_sound(path):
            reply: Reply | None = NO_ADDRESS
            recipient = ""
        elif packets.RCPT not in self._silent and len(self.transaction.recipients) >= self._relay.limits.recipients:
            reply = self._relay.over("recipients", self._client)
        else:
            reply = refusal(self.transaction, purpose)
        self._attempt.heard(reply or OK, recipient)
        if reply is None:
            self.transaction.purpose = purpose
            self.transaction.recipients.append(path)
        elif packets.RCPT in self._silent:
            self._refused = self._refused or reply
        else:
            self.transaction.refused.append(reply.code)
            return reply
        return None

    def _header(self, data: bytes) -> None:
        name, value, *_ = (*packets.texts(data), b"")
        self._text().field(name, value)

    def _body(self, data: bytes) -> None:
        self._text().body(data)

    def _text(self) -> Incoming:
        if self.incoming is None:
            if self.transaction is None:
                raise ProtocolError("a text without a sender")
            held = Reservation(self._relay.memory, self.transaction.origin)
            self._held.callback(held.release)
            self._began = asyncio.get_running_loop().time()
            self.incoming = Incoming(held, self._relay.limits.message_size, leading_space=self._leading_space)
        return self.incoming

    def _abort(self, data: bytes) -> None:
        self.clear()
        self._login = b""

    def _quit(self, data: bytes) -> None:
        self.clear()
        self.closed = True

    def _reuse(self, data: bytes) -> None:
        self._abort(data)
        self._client = packets.UNKNOWN


_METHODS: dict[bytes, Callable[[Session, bytes], Reply | None]] = {
    packets.MACROS: Session._names,
    packets.CONNECT: Session._connect,
    packets.MAIL: Session._mail,
    packets.RCPT: Session._rcpt,
    packets.HEADER: Session._header,
    packets.BODY: Session._body,
    packets.ABORT: Session._abort,
    packets.QUIT: Session._quit,
    packets.REUSE: Session._reuse,
}


def _said(reply: Reply) -> bytes:
    return packets.reply(*reply.raw.removesuffix(b"\r\n").split(b"\r\n"))


def _path(text: bytes) -> bytes:
    """A path without its angle brackets."""
    return text[1:-1] if text[:1] + text[-1:] == b"<>" else text


def _is_sound(path: bytes) -> bool:
    return len(path) <= MAX_PATH and not has_control(decoded(path))
