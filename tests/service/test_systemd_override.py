"""The drop-in for a configuration: systemd accepts it, and it allows what is needed and no more."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spamfilter.config.settings import Settings
from spamfilter.service.systemd_override import drop_in
from spamfilter.system.packaged_files import shipped
from tests.support.real import require

OPEN = "IPAddressAllow=any"
TO_MAKE = "# Make this folder before the start; without it systemd ends the service with 226/NAMESPACE."
DEFAULT = ["LimitNOFILE=", "IPAddressDeny=any", "IPAddressAllow=localhost"]


def lines(**settings: dict[str, Any]) -> list[str]:
    """What stands below [Service], without the number of descriptors."""
    first, *rest = drop_in(Settings.model_validate(settings)).splitlines()
    assert first == "[Service]"
    return [re.sub(r"(?<=LimitNOFILE=)\d+$", "", line) for line in rest]


@pytest.mark.parametrize(
    ("relay", "network"),
    [
        pytest.param({}, DEFAULT[1:], id="all on this host"),
        pytest.param({"next_hop": "smtp://localhost:26"}, DEFAULT[1:], id="localhost"),
        pytest.param(
            {"next_hop": "smtp://192.0.2.1:25"},
            ["IPAddressDeny=any", "IPAddressAllow=192.0.2.1 localhost"],
            id="next-hop",
        ),
        pytest.param(
            {"submission": ["unix:/run/spamfilter/x.sock", "[::1]:587"]}, DEFAULT[1:], id="a submission socket"
        ),
        pytest.param(
            {"milter": ["192.0.2.9:10027", "unix:/run/spamfilter/m.sock"], "trusted": ["192.0.2.0/24"]},
            ["IPAddressDeny=any", "IPAddressAllow=192.0.2.0/24 localhost"],
            id="a mail server elsewhere asks by milter",
        ),
        pytest.param(
            {"next_hop": "smtp://[2001:db8::1]:25"},
            ["IPAddressDeny=any", "IPAddressAllow=2001:db8::1 localhost"],
            id="IPv6",
        ),
        pytest.param(
            {"next_hop": "smtp://[fe80::1%eth0]:25"},
            ["IPAddressDeny=any", "IPAddressAllow=fe80::1 localhost"],
            id="a zone",
        ),
        pytest.param(
            {"next_hop": "smtp://[::ffff:192.0.2.5]:25"},
            ["IPAddressDeny=any", "IPAddressAllow=192.0.2.5 localhost"],
            id="IPv4 as IPv6",
        ),
        pytest.param(
            {"listen": ["0.0.0.0:25"], "trusted": ["192.0.2.0/24"]},
            ["IPAddressDeny=any", "IPAddressAllow=192.0.2.0/24 localhost"],
            id="trusted clients alone",
        ),
        pytest.param(
            {"next_hop": "smtp://mail.example:25"},
            ["# The network is open: the addresses of mail.example may change; next_hop may name one", OPEN],
            id="a name",
        ),
        pytest.param(
            {"listen": ["[::]:25"], "domains": ["example.org"]},
            ["# The network is open: mail for [relay] domains comes from everywhere", OPEN],
            id="the world",
        ),
    ],
)
def test_the_network_is_open_for_those_of_the_configuration(relay: dict[str, Any], network: list[str]) -> None:
    assert lines(relay=relay) == ["LimitNOFILE=", *network]


def test_what_lies_elsewhere_may_be_written(tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    assert lines(
        relay={
            "next_hop": "maildir:/srv/with blank/50%",
            "submission": ["unix:/run/spamfilter/x.sock", f"unix:{made}/x.sock"],
        },
        verdict={"quarantine": "/home/quarantine"},
        store={"url": "sqlite:////var/lib/spamfilter/other/x.db"},
        feedback={"socket": "/run/spamfilter/feedback.sock"},
    ) == [
        "LimitNOFILE=",
        TO_MAKE,
        'ReadWritePaths="/home/quarantine"',
        TO_MAKE,
        'ReadWritePaths="/srv/with blank/50%%"',
        f'ReadWritePaths="{made}"',
        "ProtectHome=no",
        *DEFAULT[1:],
    ]


def test_there_are_descriptors_for_every_connection() -> None:
    (found,) = re.findall(r"LimitNOFILE=(\d+)", drop_in(Settings.model_validate({"limits": {"connections": 9000}})))
    assert int(found) > 18_000


@pytest.mark.parametrize(("seconds", "said"), [(10, []), (30, []), (120, ["TimeoutStopSec=165"])])
def test_systemd_waits_for_transactions_that_may_go_on_for_longer(seconds: int, said: list[str]) -> None:
    """With the unit alone it would kill the relay amid them."""
    assert [line for line in lines(limits={"drain_seconds": float(seconds)}) if "Timeout" in line] == said


def test_systemd_takes_it_and_counts_the_service_less_exposed(tmp_path: Path) -> None:
    unit = tmp_path / "spamfilter.service"
    unit.write_text(
        shipped("systemd/spamfilter.service").read_text().replace("/opt/spamfilter/bin/spamfilter", "/bin/true")
    )
    analyze = require("systemd-analyze", "systemd")

    def exposure() -> float:
        words = [analyze, "security", "--offline=true", str(unit)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        (found,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
        return float(found)

    before = exposure()
    text = drop_in(Settings.model_validate({"relay": {"next_hop": "maildir:/srv/with blank/50%"}}))
    unit.write_text(unit.read_text() + "\n" + text + "\n")
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert exposure() < before


@pytest.mark.parametrize("name", ["report", "digest", "web"])
def test_the_other_units_may_reach_what_the_relay_reaches(tmp_path: Path, name: str) -> None:
    """By the folder of docs/install.md, which systemd reads for every unit whose name begins so."""
    unit = tmp_path / f"spamfilter-{name}.service"
    unit.write_text(shipped(f"systemd/{unit.name}").read_text().replace("/opt/spamfilter/bin/spamfilter", "/bin/true"))
    (folder := tmp_path / "spamfilter-.service.d").mkdir()
    (folder / "host.conf").write_text(
        drop_in(Settings.model_validate({"relay": {"next_hop": "smtp://mail.example:25"}}))
    )
    words = [require("systemd-analyze", "systemd"), "security", "--offline=true", str(unit)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "allow list with non-localhost entries" in done.stdout


@pytest.mark.parametrize(
    ("host", "network"),
    [
        pytest.param("/d", DEFAULT[1:], id="socket"),
        pytest.param("localhost/d", DEFAULT[1:], id="localhost"),
        pytest.param("192.0.2.9/d", ["IPAddressDeny=any", "IPAddressAllow=192.0.2.9 localhost"], id="address"),
        pytest.param(
            "db.example/d",
            ["# The network is open: the addresses of db.example may change; [store] url may name one", OPEN],
            id="name",
        ),
        pytest.param(
            "192.0.2.1/d?host=192.0.2.2,192.0.2.3",
            ["IPAddressDeny=any", "IPAddressAllow=192.0.2.2 192.0.2.3 localhost"],
            id="several, which come before the URL's own",
        ),
        pytest.param(
            "/d?host=192.0.2.2:5432,192.0.2.3:5433",
            ["IPAddressDeny=any", "IPAddressAllow=192.0.2.2 192.0.2.3 localhost"],
            id="several with ports",
        ),
        pytest.param(
            "/d?host=db1,192.0.2.3&hostaddr=192.0.2.1,",
            ["IPAddressDeny=any", "IPAddressAllow=192.0.2.1 192.0.2.3 localhost"],
            id="an address for one of two names",
        ),
        pytest.param(
            "/d?service=mail",
            ["# The network is open: the service file that [store] url refers to may name any host", OPEN],
            id="service file",
        ),
    ],
)
def test_the_server_of_a_database_may_be_reached(host: str, network: list[str]) -> None:
    assert lines(store={"url": f"postgresql+psycopg://u@{host}"})[-len(network) :] == network
