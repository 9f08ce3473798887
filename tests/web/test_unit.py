"""The web page under the restrictions of its unit, with a relay under those of its own."""

import os
import re
import smtplib
import subprocess
import sys

from spamfilter.web.accounts import line_of
from tests.integration.servers import await_start, free_port, relay, wait_until, workshop
from tests.support.real import require_root
from tests.support.sandbox import sandbox
from tests.web.pages import PASSWORD, Browser, mail_of

USER = 61_235


def test_the_page_does_all_it_does_as_its_unit_lets_it() -> None:
    """Sign in, mark through the relay's socket, release from quarantine, doctor's probe, SIGTERM."""
    require_root("folders are given to another user")
    with workshop() as folder:
        state, run, accounts, log = (folder / name for name in ("state", "run", "accounts", "web.log"))
        for path in (state, run):
            path.mkdir()
            os.chown(path, USER, USER)
        accounts.write_text(line_of("anna", "administer", PASSWORD) + "\n")
        web = {"listen": f"127.0.0.1:{free_port()}", "accounts": str(accounts)}
        settings = {"verdict": {"on_unsure": "quarantine"}, "feedback": {"socket": str(run / "feedback.sock")}}
        with relay(folder, sandbox(folder, state, run, user=USER), web=web, **settings) as server:
            prefix = sandbox(folder, state, user=USER, unit="spamfilter-web.service")
            with log.open("wb") as file:
                command = [*prefix, sys.executable, "-m", "spamfilter", "web"]
                process = subprocess.Popen(command, env=server.environment, stdout=file, stderr=file)
            try:
                await_start(process, lambda: "ready: http://" in log.read_text(), log.read_text)
                browser = Browser(int(web["listen"].split(":")[1]))
                assert browser.sign_in("anna").status == 303
                with smtplib.SMTP("127.0.0.1", server.port, timeout=60) as client:
                    client.sendmail("a@example.org", "b@example.test", mail_of("one", "Kept", "a mail in quarantine"))
                wait_until(lambda: "/messages/0" in browser.get("/messages").text, "the journal")
                (id,) = re.findall(r"/messages/([0-9A-Z]{26})", browser.get("/messages").text)
                assert browser.submit("/", f"/messages/{id}/mark", label="spam").status == 303
                assert "learnt as spam" in browser.get("/").words
                assert browser.submit("/", f"/messages/{id}/release").status == 303
                assert "delivered to" in browser.get("/").words
                probed = browser.submit("/", "/doctor")
                assert (probed.status, "canary" in probed.words) == (200, True)
                assert not re.search(r"chip failed", probed.text), probed.words
                process.terminate()
                assert process.wait(60) == 0
            finally:
                process.kill()
                process.wait()
            assert not re.search("not permitted|Read-only|denied|Traceback|ERROR", log.read_text()), log.read_text()
