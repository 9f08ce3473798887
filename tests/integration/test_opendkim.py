"""Allowed senders with a real verifier: Postfix with OpenDKIM as its Milter, the relay behind the queue."""

import contextlib
import smtplib
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dkim
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.integration.servers import (
    Relay,
    Sink,
    await_start,
    end,
    free_port,
    postfix,
    relay,
    sink,
    wait_until,
    workshop,
)
from tests.support.real import require, require_root

MAIL = b"From: Shop <news@shop.example>\r\nTo: alice@example.test\r\nSubject: %s\r\n\r\nOrder cheap watches now.\r\n"
FORGED = b"Authentication-Results: mx.test; dkim=pass header.d=shop.example\r\n"
VERIFIER = """
Mode v
Background no
Syslog no
RequireSafeKeys no
AuthservID mx.test
AlwaysAddARHeader yes
InternalHosts 192.0.2.1
TestPublicKeys {folder}/keys
PidFile {folder}/pid
Socket inet:{port}@127.0.0.1
"""


@contextlib.contextmanager
def verifier(folder: Path, public: str) -> Iterator[int]:
    """OpenDKIM, which knows the key of shop.example; its port."""
    program = require("opendkim", "opendkim")
    folder.mkdir()
    record = "v=DKIM1; k=rsa; p=" + "".join(public.splitlines()[1:-1])
    (folder / "keys").write_text(f"one._domainkey.shop.example {record}\n")
    port = free_port()
    (folder / "conf").write_text(VERIFIER.format(folder=folder, port=port))
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [program, "-f", "-x", str(folder / "conf")], stdout=output, stderr=output, start_new_session=True
        )
    try:
        await_start(process, lambda: _listens(port), (folder / "output").read_text)
        yield port
    finally:
        process.terminate()
        end(process)


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


class House:
    """Client -> Postfix with OpenDKIM -> relay, which blocks this client -> Postfix -> sink."""

    def __init__(self, front: int, relay: Relay, hop: Sink, key: bytes) -> None:
        self.front = front
        self.relay = relay
        self.hop = hop
        self.key = key

    def signed(self, mail: bytes, domain: bytes = b"shop.example") -> bytes:
        return bytes(dkim.sign(mail, b"one", domain, self.key, include_headers=[b"from", b"subject"])) + mail

    def status(self, mail: bytes) -> str:
        """The X-Spam-Status that a mail comes with."""
        before = len(self.hop.received)
        with smtplib.SMTP("127.0.0.1", self.front, "client.test", timeout=60) as client:
            client.sendmail("bounce@shop.example", ["alice@example.test"], mail)
        (status,) = self.hop.wait(before + 1)[-1].values("X-Spam-Status")
        return status


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    require_root("Postfix starts as root and changes users itself")
    require("opendkim", "opendkim")
    with workshop() as folder, sink() as hop:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        private = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        back = free_port()
        with (
            verifier(folder / "opendkim", public) as milter,
            relay(
                folder / "relay",
                relay={"next_hop": f"smtp://127.0.0.1:{back}", "mode": "after-queue", "hostname": "mail.test"},
                lists={"results_from": ["mx.test"], "allow": ["shop.example"], "block": ["127.0.0.0/8"]},
            ) as filter,
            postfix(
                folder / "postfix", to=hop.port, back=back, content_filter=filter.port,
                settings=f"smtpd_milters = inet:127.0.0.1:{milter}\nmilter_default_action = tempfail\n",
            ) as server,
        ):  # fmt: skip
            made = House(server.front, filter, hop, private)
            wait_until(lambda: " rule=config" in made.status(MAIL % b"start"), "the lists")
            yield made


def test_a_signed_sender_is_proved_by_what_opendkim_writes(house: House) -> None:
    assert "allowed=shop.example proof=dkim rule=config" in house.status(house.signed(MAIL % b"signed"))
    assert "X-Spam-Flag" not in house.hop.received[-1].mail.decode()


@pytest.mark.parametrize("name", ["unsigned", "altered", "forged", "forged-twice", "forged-and-altered", "another"])
def test_nothing_else_proves_a_sender(house: House, name: str) -> None:
    plain, signed = MAIL % name.encode(), house.signed(MAIL % name.encode())
    mail = {
        "unsigned": plain,
        "altered": signed.replace(b"cheap", b"cheaper"),
        "forged": FORGED + plain,
        "forged-twice": FORGED + b"Received: from a by b; Tue, 24 Nov 2026 10:00:00 +0000\r\n" + FORGED + plain,
        "forged-and-altered": FORGED + signed.replace(b"cheap", b"cheaper"),
        "another": house.signed(plain, b"other.example"),
    }[name]
    assert "blocked=127.0.0.0/8 rule=config" in house.status(mail)
