"""The line on top of every page: it waits for nobody, and tells details to administrators alone."""

import socket
from contextlib import closing
from pathlib import Path

from spamfilter.config.settings import Settings
from spamfilter.stores import open_store
from spamfilter.web.site.status_strip import PATIENCE, StatusStrip
from tests.integration.servers import free_port


def test_a_relay_that_does_not_answer_keeps_no_page_waiting(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "store": {"url": f"sqlite:///{tmp_path}/s.db"},
            "feedback": {"socket": f"{tmp_path}/socket"},
            "relay": {"next_hop": f"smtp://127.0.0.1:{free_port()}"},
        }
    )
    with (
        closing(socket.socket(socket.AF_UNIX)) as silent,
        closing(open_store(settings.store_url(), migrate=True)) as store,
    ):
        silent.bind(f"{tmp_path}/socket")
        silent.listen()
        strip = StatusStrip(lambda: settings, store)
        relay, next_hop, database = strip.states()
        assert (relay.text, relay.good) == (f"relay: no answer within {PATIENCE:g} s", False)
        assert (next_hop.text, next_hop.good) == ("the next hop does not answer", False)
        assert "127.0.0.1" in next_hop.detail
        assert (database.text, database.good) == ("database answers", True)
        assert strip.states() == [relay, next_hop, database]
