"""Who is proved by Authentication-Results, and every way to forge it that came to mind."""

import time

import pytest

from spamfilter.relay.sender_lists.decision import Origin
from spamfilter.relay.sender_lists.raw_header import HEADER_READ, only_address

OURS = "mx.example.net"
GOOD = "Authentication-Results: mx.example.net; dmarc=pass (p=none) header.from=good.example\r\n"
RECEIVED = "Received: from client by mx.example.net; Mon, 1 Jun 2026 12:00:00 +0000\r\n"
FROM = "From: Boss <boss@good.example>\r\n"
BODY = "Subject: x\r\n\r\nAuthentication-Results: mx.example.net; dmarc=pass header.from=good.example\r\n"


def proof(header: str, envelope: str = "boss@good.example", way: str = "header") -> str:
    return Origin((header + BODY).encode(), envelope, "192.0.2.1", {OURS, "opendkim"}).proof(way)


def results(text: str, name: str = OURS) -> str:
    return f"Authentication-Results: {name}; {text}\r\n"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param(GOOD + RECEIVED + FROM, "dmarc", id="dmarc"),
        pytest.param(RECEIVED + GOOD + FROM, "dmarc", id="below-our-received"),
        pytest.param(GOOD + "From: boss@GOOD.example\r\n", "dmarc", id="bare-address"),
        pytest.param(GOOD + 'From: "Boss, The (CEO)" <boss@good.example>\r\n', "dmarc", id="quoted-name"),
        pytest.param(results("dkim=pass header.d=good.example header.b=AbC/=") + FROM, "dkim", id="dkim"),
        pytest.param(results("dkim=pass header.i=@good.example") + FROM, "dkim", id="dkim-identity"),
        pytest.param(results("dkim=fail header.d=a; dkim=pass header.d=example") + FROM, "dkim", id="signed-above"),
        pytest.param("Authentication-Results:\r\n mx.example.net 1;\r\n\tdmarc=pass\r\n header.from=good.example\r\n"
                     + FROM, "dmarc", id="folded"),
        pytest.param(results("none") + results("dmarc=pass header.from=good.example", "opendkim") + FROM, "dmarc",
                     id="second-name"),
        pytest.param(FROM, "", id="nothing"),
        pytest.param(results("dmarc=pass header.from=good.example", "mx.evil.example") + FROM, "", id="another-server"),
        pytest.param(results("dmarc=pass header.from=good.example", "mx.example.net.evil.example") + FROM, "",
                     id="longer-name"),
        pytest.param(results("dmarc=fail header.from=good.example") + GOOD + FROM, "", id="forged-below-ours"),
        pytest.param(results("none") + GOOD + FROM, "", id="forged-below-none"),
        pytest.param(results("dkim=pass header.d=evil.example") + GOOD + FROM, "", id="forged-below-another-method"),
        pytest.param(RECEIVED + RECEIVED + GOOD + FROM, "", id="below-the-second-received"),
        pytest.param("Authentication-Results: (mx; dmarc=fail\r\n" + GOOD + FROM, "", id="unclosed-above"),
        pytest.param(results("dmarc=pass header.from=evil.example") + FROM, "", id="another-domain"),
        pytest.param(results("dmarc=pass header.from=good.example.evil.example") + FROM, "", id="domain-begins-alike"),
        pytest.param(results("dmarc=pass header.from=od.example") + FROM, "", id="domain-ends-alike"),
        pytest.param(results("dkim=pass header.d=od.example") + FROM, "", id="signer-ends-alike"),
        pytest.param(results("dkim=pass header.d=sub.good.example") + FROM, "", id="signed-below"),
        pytest.param(results("dkim=pass header.d=evil.example header.i=@good.example") + FROM, "", id="signer-wins"),
        pytest.param(results("spf=pass smtp.mailfrom=good.example") + FROM, "", id="spf-says-nothing-about-from"),
        pytest.param(results("dmarc=fail (; dmarc=pass header.from=good.example)") + FROM, "", id="in-a-comment"),
        pytest.param(results(r"dmarc=fail (\); dmarc=pass header.from=good.example)") + FROM, "", id="escaped-comment"),
        pytest.param(results("dmarc=fail ((x); dmarc=pass header.from=good.example)") + FROM, "", id="nested-comment"),
        pytest.param(results('spf=pass smtp.mailfrom="; dmarc=pass header.from=good.example"@evil.example') + FROM, "",
                     id="in-a-quoted-sender"),
        pytest.param(results('dmarc=fail reason="\\"; dmarc=pass header.from=good.example"') + FROM, "",
                     id="escaped-quote"),
        pytest.param(results("spf=pass smtp.mailfrom=x; dmarc=pass header.from=good.example; dmarc=fail header.from=e")
                     + FROM, "", id="said-twice"),
        pytest.param(results("dmarc=pass header.from=evil.example header.from=good.example") + FROM, "",
                     id="property-twice"),
        pytest.param(results("dmarc=pass header.from=good.example (") + FROM, "", id="unclosed-comment"),
        pytest.param(results("dmarc=pass header.from=good.example " + "a.b=c " * 2000) + FROM, "", id="too-long"),
        pytest.param(GOOD + FROM + "From: e@evil.example\r\n", "", id="two-from"),
        pytest.param(GOOD + "FROM : e@evil.example\r\n" + FROM, "", id="two-from-in-disguise"),
        pytest.param(GOOD + "From: boss@good.example, e@evil.example\r\n", "", id="two-addresses"),
        pytest.param(GOOD + "From: <boss@good.example> <e@evil.example>\r\n", "", id="two-in-brackets"),
        pytest.param(GOOD + 'From: "x\\" <e@evil.example>" <boss@good.example>\r\n', "", id="escaped-name"),
        pytest.param(GOOD + "From: e@evil.example (<boss@good.example>)\r\n", "", id="address-in-a-comment"),
        pytest.param(GOOD + "From: g: boss@good.example;\r\n", "", id="group"),
        pytest.param(GOOD + "X-From: boss@good.example\r\n", "", id="no-from"),
        pytest.param("X: " + "a" * HEADER_READ + "\r\n" + GOOD + FROM, "", id="header-too-long"),
        pytest.param(GOOD + FROM + "X: " + "a" * HEADER_READ + "\r\n", "", id="header-too-long-below"),
        pytest.param("\r\n" + GOOD + FROM, "", id="in-the-body"),
    ],
)  # fmt: skip
def test_a_from_is_proved_by_our_own_server_alone(header: str, expected: str) -> None:
    assert proof(header) == expected


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("spf=pass smtp.mailfrom=boss@good.example", "spf", id="address"),
        pytest.param("spf=pass smtp.helo=x; spf=pass smtp.mailfrom=good.example", "spf", id="domain"),
        pytest.param("spf=pass smtp.mailfrom=evil.example", "", id="another-domain"),
        pytest.param("spf=pass smtp.helo=good.example", "", id="helo"),
        pytest.param("spf=softfail smtp.mailfrom=good.example", "", id="softfail"),
        pytest.param("spf=pass smtp.mailfrom=good.example; spf=fail smtp.mailfrom=good.example", "", id="twice"),
        pytest.param("dmarc=pass header.from=good.example", "", id="dmarc-says-nothing-about-the-envelope"),
    ],
)
def test_an_envelope_is_proved_by_spf(said: str, expected: str) -> None:
    assert proof(results(said) + FROM, way="envelope") == expected


def test_a_stranger_proves_nothing_by_a_header() -> None:
    assert Origin((GOOD + FROM + BODY).encode(), "", "192.0.2.1").proof("header") == ""


@pytest.mark.parametrize("value", ["", "<>", "@", "a@", "@b", "<a@b", "a b@c", "a@b@c", "<@r:a@b>", "x" * 400 + "@b"])
def test_what_is_no_plain_address_is_none(value: str) -> None:
    assert only_address(value) == ""


@pytest.mark.parametrize(
    "piece", [GOOD, FROM, "From:\r\n ", "From: <" + "a." * 5000 + "@" + "a." * 5000 + "\r\n"], ids=range(4)
)
def test_a_header_of_megabytes_takes_milliseconds(piece: str) -> None:
    mail = (piece * (8_000_000 // len(piece)) + BODY).encode()
    began = time.thread_time()
    origin = Origin(mail, "a@b.example", "192.0.2.1", {OURS})
    assert len(origin.senders) < 100
    assert origin.proof("header") == ""
    assert time.thread_time() - began < 0.1
