"""A month of small mails through a relay: the report in every form and the pages say what journal and ledger say."""

import json
import re
from datetime import timedelta
from pathlib import Path

from spamfilter.bayes.labels import Label
from tests.faults.daemon import Daemon
from tests.faults.hop import next_hop
from tests.load.mails import made
from tests.support.month import DAYS, START, Calendar, counted, differences, replay
from tests.web.month import PERIODS, list_differences, overview_differences
from tests.web.pages import served, web_settings

MAILS = 120
WEEK = timedelta(days=7)
END = START + timedelta(days=DAYS)


def test_every_report_and_page_of_a_month_says_what_journal_and_ledger_say(tmp_path: Path) -> None:
    calendar = Calendar(tmp_path)
    labels: list[Label] = ["spam" if number % 5 < 2 else "ham" for number in range(MAILS)]
    mails = ((label, made(f"mail{number}", label)) for number, label in enumerate(labels))
    web = web_settings(tmp_path / "relay")
    with next_hop() as hop:
        relay = Daemon(tmp_path / "relay", f"smtp://127.0.0.1:{hop.port}", verdict={"reject_after": 20}, web=web)
        relay.environment |= calendar.environment
        with relay.run():
            month = replay(relay, hop, calendar, mails, MAILS)
            calendar.set(END)
            with served(relay, hop, web) as site:
                anna = site.browser("anna")
                until = END + timedelta(hours=1)  # of the page: the end of this hour
                for name, days in PERIODS.items():
                    count = counted(relay.database, until - timedelta(days=days), until)
                    assert (name, overview_differences(anna, name, count)) == (name, [])
                assert list_differences(anna, relay.database) == []
        calendar.set(END + timedelta(hours=1))
        assert month.sent == MAILS
        assert len(month.marked) > 10
        for since in (START, END - WEEK, END - timedelta(hours=36)):
            period = ("--since", since.isoformat(), "--until", END.isoformat())
            report = json.loads(relay.command("stats", *period, "--json").stdout)
            count = counted(relay.database, since, END)
            assert differences(report, count) == []
            assert count["messages"] > 5
            text, page = (relay.command("stats", *period, "--format", form).stdout for form in ("text", "html"))
            assert f"Mail        {count['messages']:,} messages" in text
            assert f"<b>{count['messages']:,}</b> messages" in page
            for name in ("ham_rate", "spam_rate"):
                errors, messages = count[name]
                assert (f"{errors:,} of {messages:,} = " if messages else "nothing to count yet") in text
                assert re.search(rf"<td>{errors:,}</td><td>{messages:,}</td>", page)
