"""The night: the next hop is away twice, a recipient is refused, the relay stops; each place says when and how many."""

import contextlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from spamfilter.reports.outages import ALIVE
from spamfilter.stores import open_store
from tests.faults.client import Client, mail_of
from tests.faults.daemon import Daemon, daemon
from tests.faults.fault import Say
from tests.faults.hop import next_hop
from tests.integration.servers import free_port, wait_until
from tests.relay.limits.scraping import Scraper
from tests.web.pages import served, web_settings


def sent(relay: Daemon, name: str, *recipients: str) -> int | None:
    with Client(relay.port) as client:
        return client.deliver(mail_of(name), recipients or ("b@example.test",)).code


def unjudged(relay: Daemon) -> int:
    with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:
        now = datetime.now(UTC)
        return len(store.deferrals(now - timedelta(hours=1), now + timedelta(hours=1)))


def test_a_night_of_outages_is_seen_everywhere_by_when_and_how_many(tmp_path: Path) -> None:
    scraper, section = Scraper(), web_settings(tmp_path)
    with (
        next_hop() as hop,
        daemon(tmp_path, hop, web=section, metrics=scraper.settings) as relay,
        served(relay, hop, section) as site,
    ):
        assert sent(relay, "before") == 250
        hop.faults["MAIL"] = Say(b"451 4.3.0 Out of order\r\n")
        assert [sent(relay, f"away{number}") for number in range(3)] == [451] * 3
        hop.faults.clear()
        hop.faults["RCPT TO:<nobody@example.test>"] = Say(b"550 5.1.1 <nobody@example.test>: no such user\r\n")
        assert sent(relay, "refused", "nobody@example.test") == 550
        assert sent(relay, "in-part", "nobody@example.test", "b@example.test") == 250
        hop.faults["MAIL"] = Say(b"421 4.3.2 Leaving\r\n")
        assert sent(relay, "again") == 421
        wait_until(lambda: unjudged(relay) == 4, "the entries of what was deferred")

        assert [scraper.value("final_replies_total", code) for code in ("2xx", "4xx", "5xx")] == [2, 4, 1]
        report = json.loads(relay.command("stats", "--since", "1h", "--json").stdout)
        assert report["unjudged"] == {"deferred": 4, "rejected": 2}
        assert [(one["messages"], one["reply"]) for one in report["outages"]] == [(4, "451 4.3.0 Out of order")]
        assert {"reply": "550 5.1.1 <>: no such user", "messages": 2} in report["troubles"]
        assert any("4 messages were deferred" in sentence for sentence in report["advice"])

        said = json.loads(relay.command("doctor", "--no-canary", "--json").stdout)
        [warning] = [line for line in said["lines"] if line["check"] == "outages"]
        assert (warning["status"], "4 messages deferred" in warning["found"]) == ("warning", True)
        assert "log" in warning["advice"]

        page = site.browser("anna").get("/?period=day").words
        assert "relay runs" in page
        assert "database answers" in page
        assert "4 messages deferred" in page
        assert "451 4.3.0 Out of order" in page

        relay.stop()
        with contextlib.closing(open_store(f"sqlite:///{relay.database}")) as store:  # half an hour passes
            store.put_setting(f"{ALIVE} relay.test", (datetime.now(UTC) - timedelta(minutes=30)).isoformat())
        stopped = relay.command("stats", "--since", "1h").stdout
        assert "the relay did not run" in stopped
        anna = site.browser("anna")
        wait_until(lambda: "the relay does not run" in anna.get("/messages").words, "the line on the page")
        relay.start()
        wait_until(
            lambda: json.loads(relay.command("stats", "--since", "2h", "--json").stdout)["downtimes"][0]["end"],
            "the relay's note that it runs again",
        )
        [down] = json.loads(relay.command("stats", "--since", "2h", "--json").stdout)["downtimes"]
        length = datetime.fromisoformat(down["end"]) - datetime.fromisoformat(down["begin"])
        assert timedelta(minutes=29) < length < timedelta(minutes=35)


def test_a_relay_says_at_its_start_that_the_next_hop_does_not_answer(tmp_path: Path) -> None:
    relay = Daemon(tmp_path, f"smtp://127.0.0.1:{free_port()}")
    with relay.run():
        wait_until(lambda: "the next hop does not answer" in relay.log(), "the warning")
