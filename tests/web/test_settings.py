"""The page takes what a running relay takes: other rules of the counts at once, other settings at SIGHUP."""

import re
from pathlib import Path

from tests.integration.servers import wait_until
from tests.web.pages import Browser, mail_of, site


def test_the_page_follows_a_retraining(tmp_path: Path) -> None:
    with site(tmp_path, learn={"likelihood": "multinomial"}) as pages:
        id = pages.send(mail_of("one", "A message", "with some words"))
        browser = pages.browser("anna")
        config = pages.relay.config
        config.write_text(config.read_text().replace("multinomial", "bernoulli"))
        assert browser.get(f"/messages/{id}").status == 200
        retrained = pages.relay.command("retrain")
        assert retrained.returncode == 0, retrained.stderr
        for path in (f"/messages/{id}", "/", "/review", "/learning"):
            assert browser.get(path).status == 200, path
        wait_until(lambda: "loading all counts anew" in pages.relay.log(), "the relay's new counts")
        assert browser.submit("/", f"/messages/{id}/mark", label="spam").status == 303
        assert "learnt as spam" in browser.get("/").words


def test_the_page_reads_its_configuration_again_at_sighup(tmp_path: Path) -> None:
    with site(tmp_path, verdict={"unsure": 0.3}) as pages:
        id = pages.send(mail_of("one", "A message", "with some words"))
        browser = pages.browser("anna")
        assert now(browser, id) == "unsure"
        config = pages.relay.config
        text = config.read_text()
        config.write_text(text.replace("0.3", '"no number"'))
        pages.hang_up()
        wait_until(lambda: "not reloaded" in pages.log(), "the refusal")
        assert now(browser, id) == "unsure"
        config.write_text(text.replace("unsure = 0.3", "unsure = 0.998\nspam = 0.999"))
        pages.hang_up()
        wait_until(lambda: "INFO reloaded" in pages.log(), "the new settings")
        assert now(browser, id) == "ham"  # nothing of it is known, which leaves much in doubt


def test_sighup_amid_a_start_is_obeyed_after_it(tmp_path: Path) -> None:
    with site(tmp_path) as pages:
        pages.stop()
        status = Path(f"/proc/{pages.launch()}/status")
        blocked = re.compile(r"^SigBlk:\t[0-9a-f]*[13579bdf]$", re.MULTILINE)  # SIGHUP is the lowest bit
        wait_until(lambda: blocked.search(status.read_text()) is not None, "the start")
        pages.hang_up()
        wait_until(lambda: "ready: http://" in pages.log() and "INFO reloaded" in pages.log(), "the page")


def now(browser: Browser, id: str) -> str:
    """The class of a message by the present settings: the page shows it behind the one from when the message came."""
    _, present = re.findall(r'class="chip (\w+)"', browser.get(f"/messages/{id}").text)
    return str(present)
