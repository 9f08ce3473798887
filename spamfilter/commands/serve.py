"""The command `serve`: run the relay."""

import signal
from pathlib import Path

import click

from spamfilter.commands.command import settings_of
from spamfilter.system.paths import config_file


@click.command()
@click.pass_obj
def serve(file: Path | None) -> None:
    """Run the relay until SIGTERM; SIGHUP reloads thresholds, lists and limits.

    Needs no configuration: listens on 127.0.0.1:10025, keeps its database under the state directory and
    delivers to a Maildir there until [relay] next_hop names your mail server.

    Example: spamfilter serve
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until the relay can obey; it would end a start
    from spamfilter.service.daemon import serve as run

    run(settings_of(file), config_file(file))
