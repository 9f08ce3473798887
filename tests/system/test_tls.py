"""TLS, with the program openssl as the other side: old and weak TLS is rejected, and no mail goes unencrypted."""

import asyncio
import re
import signal
import smtplib
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from spamfilter.config.settings import load
from spamfilter.relay.next_hops import Timeouts
from spamfilter.relay.next_hops.smtp import SmtpNextHop
from spamfilter.system import tls
from tests.faults.hop import next_hop
from tests.integration.servers import Relay, relay, wait_until
from tests.support.certificates import server_context, write_certificate
from tests.support.parts import Hop, relaying
from tests.support.real import require

MAIL = b"From: a@example.org\r\nSubject: lunch\r\n\r\nat noon?\r\n"
TOO_WEAK = {
    "TLS 1.0": ("-tls1", "-cipher", "ALL:@SECLEVEL=0"),
    "TLS 1.1": ("-tls1_1", "-cipher", "ALL:@SECLEVEL=0"),
    "no authentication": ("-tls1_2", "-cipher", "aNULL:@SECLEVEL=0"),
    "no encryption": ("-tls1_2", "-cipher", "eNULL:@SECLEVEL=0"),
    "SHA-1": ("-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"),
}
RSA = rsa.generate_private_key(65537, 2048)
GOOD = {
    "TLS 1.2": ("-tls1_2",),
    "TLS 1.3": ("-tls1_3",),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, files: tuple[Path, Path]) -> Iterator[Relay]:
    settings = {"tls_certificate": str(files[0]), "tls_key": str(files[1]), "hostname": "relay.test"}
    with relay(tmp_path_factory.mktemp("relay"), relay=settings) as running:
        yield running


def openssl(port: int, *options: str, said: str = "QUIT\r\n") -> str:
    """The output of `openssl s_client` for a connection."""
    command = [require("openssl", "openssl"), "s_client", "-starttls", "smtp", "-connect", f"127.0.0.1:{port}"]
    done = subprocess.run(
        [*command, *options], input=said, capture_output=True, text=True, timeout=60, check=False, errors="replace"
    )
    return done.stdout + done.stderr


def agreed(shown: str) -> str:
    """The cipher that both sides agreed on; none if they did not."""
    found = re.search(r"^New, (\S+), Cipher is (\S+)", shown, re.MULTILINE)
    return "" if found is None or found[2] == "(NONE)" else found[2]


@pytest.mark.parametrize("kind", TOO_WEAK)
def test_a_client_that_can_only_do_what_is_weak_gets_no_tls(server: Relay, kind: str) -> None:
    shown = openssl(server.port, *TOO_WEAK[kind])
    assert "CONNECTED" in shown
    assert not agreed(shown), shown


@pytest.mark.parametrize("kind", GOOD)
def test_a_client_of_today_gets_tls_without_compression(server: Relay, kind: str) -> None:
    shown = openssl(server.port, *GOOD[kind])
    assert "GCM" in agreed(shown) or "CHACHA20" in agreed(shown)
    assert "Compression: NONE" in shown


def test_a_client_cannot_renegotiate(server: Relay) -> None:
    shown = openssl(server.port, "-tls1_2", said="R\n")
    assert agreed(shown)
    assert "RENEGOTIATING" in shown
    assert re.search("no renegotiation|alert", shown), shown


@pytest.mark.parametrize("purpose", ["server", "client"])
def test_a_context_is_no_weaker_than_promised(files: tuple[Path, Path], purpose: str) -> None:
    certificate, key = map(str, files)
    context = tls.server_context(certificate, key) if purpose == "server" else tls.client_context(certificate)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    for option in (ssl.OP_NO_COMPRESSION, ssl.OP_NO_RENEGOTIATION):
        assert context.options & option
    if purpose == "client":
        assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)


async def reply_with(folder: Path, theirs: ssl.SSLContext, ca: Path) -> tuple[bytes, Hop]:
    """The reply to a client whose mail goes to a next hop with this TLS."""
    async with Hop((*("STARTTLS", "8BITMIME"),)) as hop:
        hop.tls = theirs
        next_hop = SmtpNextHop("127.0.0.1", hop.port, "relay.test", tls.client_context(str(ca)), Timeouts(5, 5, 5))
        async with relaying(folder, next_hop) as running:
            client = await running.connect()
            await client.ask("EHLO client.example")
            heard = await client.ask("MAIL FROM:<a@example.org>")
            if heard.startswith(b"250"):
                heard = await client.send(MAIL)
            await asyncio.sleep(0)
    return heard, hop


@pytest.mark.parametrize(
    ("address", "days"),
    [
        pytest.param("127.0.0.1", -1, id="expired"),
        pytest.param("127.0.0.2", 1, id="of another host"),
    ],
)
async def test_a_next_hop_with_a_wrong_certificate_gets_no_mail(tmp_path: Path, address: str, days: int) -> None:
    certificate, key = write_certificate(tmp_path, address, days)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(certificate, key)
    heard, hop = await reply_with(tmp_path, theirs, certificate)
    assert heard.startswith(b"451 ")
    assert not hop.messages
    assert {line[:8] for line in hop.received} == {b"EHLO rel", b"STARTTLS"}


async def test_a_next_hop_with_a_certificate_of_nobody_known_gets_no_mail(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    heard, hop = await reply_with(tmp_path, server_context(tmp_path), files[0])
    assert heard.startswith(b"451 ")
    assert {line[:8] for line in hop.received} == {b"EHLO rel", b"STARTTLS"}


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
async def test_a_next_hop_that_can_only_do_old_tls_gets_no_mail(tmp_path: Path) -> None:
    theirs = server_context(tmp_path)
    theirs.set_ciphers("ALL:@SECLEVEL=0")
    theirs.minimum_version, theirs.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    heard, hop = await reply_with(tmp_path, theirs, tmp_path / "certificate.pem")
    assert heard.startswith(b"451 ")
    assert {line[:8] for line in hop.received} == {b"EHLO rel", b"STARTTLS"}


async def test_a_next_hop_with_the_right_certificate_gets_the_mail(tmp_path: Path) -> None:
    heard, hop = await reply_with(tmp_path, server_context(tmp_path), tmp_path / "certificate.pem")
    assert heard.startswith(b"250 ")
    assert len(hop.messages) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_renewed_certificate_is_shown_after_sighup_and_a_wrong_pair_never(tmp_path: Path, workers: int) -> None:
    certificate, key = write_certificate(tmp_path)
    settings = {"tls_certificate": str(certificate), "tls_key": str(key), "hostname": "relay.test", "workers": workers}
    with relay(tmp_path / "relay", relay=settings) as server:
        second = shown_certificate(server.port)
        assert second == certificate.read_text().strip()
        for renewed in (RSA, None, RSA, RSA):  # a key of another kind takes the place of the one before, too
            write_certificate(tmp_path, key=renewed)
            reloaded(server)
            first, second = second, shown_certificate(server.port)
            assert second == certificate.read_text().strip() != first
        assert not agreed(openssl(server.port, "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"))
        (tmp_path / "other").mkdir()
        key.write_bytes(write_certificate(tmp_path / "other")[1].read_bytes())
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "not reloaded" in server.log(), "the refusal")
        assert shown_certificate(server.port) == second


@pytest.mark.parametrize("workers", [1, 2])
def test_a_renewed_certificate_of_the_next_hop_is_trusted_after_sighup(tmp_path: Path, workers: int) -> None:
    ca = tmp_path / "certificate.pem"
    with next_hop() as hop:
        hop.tls = server_context(tmp_path)
        named = {"next_hop": f"smtp://127.0.0.1:{hop.port}", "next_hop_tls": "starttls", "next_hop_ca": str(ca)}
        with relay(tmp_path / "relay", relay=named | {"workers": workers}) as server:
            assert accepted(server.port, 1) == [250]
            hop.tls = server_context(tmp_path)
            reloaded(server)
            assert accepted(server.port, 4) == [250] * 4


def test_a_next_hops_ca_that_is_gone_keeps_no_certificate_from_being_renewed(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    (folder := tmp_path / "ca").mkdir()
    ca, _ = write_certificate(folder)
    named = {"next_hop": "smtp://127.0.0.1:9", "next_hop_tls": "starttls", "next_hop_ca": str(ca)}
    own = {"tls_certificate": str(certificate), "tls_key": str(key)}
    with relay(tmp_path / "relay", relay=named | own) as server:
        other = ca.rename(folder / "other.pem")
        server.config.write_text(server.config.read_text().replace(str(ca), str(other)))
        write_certificate(tmp_path)
        reloaded(server)
        assert shown_certificate(server.port) == certificate.read_text().strip()
        assert "relay.next_hop_ca is not read again: " in server.log()


def accepted(port: int, clients: int) -> list[int]:
    """The replies to mail of clients who are in a transaction at once, so that each needs a connection."""
    with ExitStack() as stack:
        all_of_them = [stack.enter_context(smtplib.SMTP("127.0.0.1", port, "c", timeout=30)) for _ in range(clients)]
        for client in all_of_them:
            client.ehlo()
            client.mail("a@x.example")
            client.rcpt("b@y.example")
        return [client.data(MAIL)[0] for client in all_of_them]


def reloaded(server: Relay) -> None:
    before = server.log().count("INFO reloaded")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log().count("INFO reloaded") > before, "the reload")


def shown_certificate(port: int) -> str:
    """The relay's certificate for new connections, in PEM."""
    found = re.search("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", openssl(port), re.DOTALL)
    assert found
    return found[0]


def test_a_key_with_a_passphrase_is_an_error_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, passphrase=b"open sesame")
    config = tmp_path / "spamfilter.toml"
    config.write_text(f'[relay]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n')
    command = [sys.executable, "-m", "spamfilter", "--config", str(config), "check-config"]
    done = subprocess.run(command, input="open sesame\n", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "the key wants a passphrase" in done.stderr
    assert "Enter" not in done.stdout + done.stderr


def test_a_key_that_everybody_can_read_is_warned_of(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    config = tmp_path / "spamfilter.toml"
    config.write_text(f'[relay]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n')
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == key.stat().st_uid and "pytest-of" in str(folder):
            folder.chmod(0o755)
    key.chmod(0o644)
    (warning,) = load(config, {}).warnings()
    assert warning == f"relay.tls_key = '{key}' can be read by every user of this host; chmod go= it"
    key.chmod(0o640)
    assert load(config, {}).warnings() == []
