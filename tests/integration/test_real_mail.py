"""Real and odd mail through a running relay: whole, signatures valid, or refused with a reason."""

import re
import smtplib
from collections.abc import Callable
from pathlib import Path

import dkim
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.integration.servers import relay, sink

_OURS = re.compile(
    rb"^(?:X-Spam-Flag|X-Spam-Status|X-Spamfilter-[^:\r\n]*)[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*",
    re.MULTILINE | re.IGNORECASE,
)


def without_ours(mail: bytes) -> bytes:
    if mail.startswith(b"\r\n"):
        return mail
    head, blank, body = mail.partition(b"\r\n\r\n")
    return _OURS.sub(b"", head + b"\r\n") + (blank[2:] + body if blank else b"")


def test_every_nasty_mail_passes_unchanged_or_is_refused_with_a_reason(
    tmp_path: Path, corpus: Callable[[str], Path]
) -> None:
    folder = corpus("nasty")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "PROVENANCE.txt")
    assert len(files) == 504
    refused = 0
    with sink() as target, relay(tmp_path / "relay", relay={"next_hop": f"smtp://127.0.0.1:{target.port}"}) as server:
        client = smtplib.SMTP("127.0.0.1", server.port, "client.example", timeout=60)
        with client:
            client.ehlo()
            for file in files:
                mail = re.sub(rb"(?<!\r)\n", b"\r\n", file.read_bytes())
                mail = mail if mail.endswith(b"\r\n") else mail + b"\r\n"
                client.mail("a@example.org")
                client.rcpt("b@example.test")
                client.putcmd("data")
                assert client.getreply()[0] == 354
                client.send(re.sub(rb"(?m)^\.", b"..", mail) + b".\r\n")
                code, text = client.getreply()
                if code == 250:
                    arrived = target.received[-1].mail
                    assert b"\nX-Spamfilter-Id: " in b"\n" + arrived, file
                    assert without_ours(arrived) == without_ours(mail), file
                else:
                    refused += 1
                    assert (code, mail.count(b"\r") == mail.count(b"\r\n")) == (550, False), file
                    assert b"stands alone" in text
        assert len(target.received) + refused == len(files)
        assert "Traceback" not in server.log()
        assert "cannot be judged" not in server.log()
    assert refused < 10


@pytest.fixture(scope="module")
def signing_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.mark.parametrize("canonical", [b"simple", b"relaxed"])
def test_a_dkim_signature_still_verifies_behind_the_relay(
    tmp_path: Path, signing_key: rsa.RSAPrivateKey, canonical: bytes
) -> None:
    private = signing_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = signing_key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    record = b"v=DKIM1; k=rsa; p=" + b"".join(public.splitlines()[1:-1])
    mail = (
        b"From: Alice <alice@example.org>\r\nTo: b@example.test\r\nSubject:  two  spaces \r\n and a fold\r\n"
        b"Date: Sat, 21 Nov 2026 10:00:00 +0000\r\nMessage-ID: <1@example.org>\r\nX-Spam-Checked: by nobody\r\n"
        b"\r\n. a dot\r\n\r\ntrailing space \r\n\xe4\r\n\r\n\r\n"
    )
    signature = dkim.sign(
        mail,
        b"key",
        b"example.org",
        private,
        canonicalize=(canonical, canonical),
        include_headers=[b"from", b"subject"],
    )
    signed = signature + mail

    def lookup(name: bytes, timeout: int = 5) -> bytes:
        return record

    assert dkim.verify(signed, dnsfunc=lookup)
    with sink() as target, relay(tmp_path / "relay", relay={"next_hop": f"smtp://127.0.0.1:{target.port}"}) as server:
        with smtplib.SMTP("127.0.0.1", server.port, "client.example", timeout=60) as client:
            client.sendmail("a@example.org", ["b@example.test"], signed)
        arrived = target.wait(1)[0].mail
    assert arrived != signed
    assert dkim.verify(arrived, dnsfunc=lookup)
    assert not dkim.verify(arrived.replace(b"a dot", b"a dash"), dnsfunc=lookup)
