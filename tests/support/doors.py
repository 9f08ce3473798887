"""DOORS: the ways by which mail comes in. A test that holds for each of them knows of one what its row says."""

from dataclasses import dataclass

import pytest

from tests.faults.client import Client, LmtpClient
from tests.faults.milter_client import MilterClient


@dataclass(frozen=True)
class Door:
    """listen: key of [relay] with its addresses. client: speaks to it, and says what was heard of a mail. next_hop:
    scheme of the next hop behind it; by milter the client takes what passes there itself.
    """

    listen: str
    client: type[Client]
    next_hop: str

    def at(self, port: int) -> str:
        """The next hop behind it on a port of this machine."""
        return f"{self.next_hop}://127.0.0.1:{port}"


DOORS = {
    "smtp": Door("listen", Client, "smtp"),
    "lmtp": Door("lmtp", LmtpClient, "lmtp"),
    "milter": Door("milter", MilterClient, "smtp"),
}

EACH_DOOR = pytest.mark.parametrize("door", DOORS, indirect=True, scope="module")
"""Runs a test for each door; its fixture `door` gets the name."""
RELAYING = ("smtp", "lmtp")
EACH_RELAYING_DOOR = pytest.mark.parametrize("door", RELAYING, indirect=True, scope="module")
"""Runs a test for each door behind which the relay itself speaks to the next hop."""
