"""The milter protocol as bytes: packets in any pieces, and what is wrong with them."""

import struct

import pytest

from spamfilter.relay.milter.packets import (
    BODY,
    LOCAL,
    LONGEST,
    QUIT,
    UNKNOWN,
    Actions,
    Decoder,
    Offer,
    ProtocolError,
    Steps,
    change,
    client_address,
    insert,
    macros,
    packet,
    reply,
    texts,
)


def cut(data: bytes, piece: int) -> list[tuple[bytes, bytes]]:
    decoder = Decoder()
    found = []
    for start in range(0, len(data), piece):
        decoder.feed(data[start : start + piece])
        while (one := decoder.packet()) is not None:
            found.append(one)
    return found


@pytest.mark.parametrize("piece", [1, 3, 7, 10_000])
def test_packets_are_the_same_in_whatever_pieces_they_come(piece: int) -> None:
    sent = [(BODY, b"x" * 5000), (QUIT, b""), (b"L", b"Subject\0 hello\0")]
    assert cut(b"".join(packet(*one) for one in sent), piece) == sent


@pytest.mark.parametrize("length", [0, LONGEST + 1, 2**32 - 1])
def test_a_length_that_cannot_be_is_an_error_before_its_bytes_are_held(length: int) -> None:
    with pytest.raises(ProtocolError):
        cut(struct.pack(">I", length) + b"x", 5)


def test_a_negotiation_is_read_and_written() -> None:
    offer = Offer(6, Actions.ADD_HEADERS, Steps.NO_HELO | Steps.LEADING_SPACE)
    assert offer.packet() == struct.pack(">I", 13) + b"O" + struct.pack(">III", 6, 1, 0x100002)
    assert Offer.of(offer.packet()[5:]) == offer
    assert Offer.of(struct.pack(">III", 6, 0x1FF, 0xFFFFFFFF) + b"more").version == 6


@pytest.mark.parametrize(
    ("data", "address"),
    [
        pytest.param(b"x\x004\x00\x19192.0.2.7\0", "192.0.2.7", id="ipv4"),
        pytest.param(b"x\x006\x00\x192001:db8::1\0", "2001:db8::1", id="ipv6"),
        pytest.param(b"x\x006\x00\x19IPv6:2001:db8::1\0", "2001:db8::1", id="ipv6-as-sendmail-writes-it"),
        pytest.param(b"x\x006\x00\x19::ffff:192.0.2.7\0", "192.0.2.7", id="mapped"),
        pytest.param(b"localhost\0L\x00\x00/run/x\0", LOCAL, id="local"),
        pytest.param(b"unknown\0U", UNKNOWN, id="unknown"),
        pytest.param(b"x\x004\x00\x19evil\n\0", UNKNOWN, id="no-address"),
    ],
)
def test_the_address_of_a_client(data: bytes, address: str) -> None:
    assert client_address(data) == address


@pytest.mark.parametrize("data", [b"", b"x", b"x\0", b"x\x004\x00\x19192.0.2.7"])
def test_a_client_without_an_address_is_an_error(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        client_address(data)


def test_texts_and_macros_end_with_nul() -> None:
    assert texts(b"<a@b>\0SIZE=9\0") == [b"<a@b>", b"SIZE=9"]
    assert macros(b"E") == (b"E", {})
    for wrong in (b"", b"M{x}\0", b"M{x}\0y"):
        with pytest.raises(ProtocolError):
            macros(wrong)


def test_what_a_mail_server_is_told() -> None:
    assert reply(b"550-5.7.1 100%", b"550 5.7.1 no")[5:] == b"550-5.7.1 100%%\r\n550 5.7.1 no\0"
    assert insert(b"X-A", b" b")[4:] == b"i\0\0\0\0X-A\0 b\0"
    assert change(b"X-A", 2, b"")[4:] == b"m\0\0\0\2X-A\0\0"
