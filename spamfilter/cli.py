"""The program `spamfilter`: its commands, and what it says when one fails.

Exit codes: 0 done, 2 wrong usage or input, 75 try again, 130 interrupted.
What a user can mend is one line on standard error, never a traceback, and does the terminal no harm.
"""

import atexit
import errno
import gc
import os
import platform
import sys
from pathlib import Path
from typing import Any

import click

from spamfilter import __version__
from spamfilter.bayes.compiled import in_words
from spamfilter.commands import COMMANDS, find
from spamfilter.errors import SpamfilterError
from spamfilter.system.escaping import harmless

# numpy, which is not imported yet: its linear algebra, which nothing here uses, would start a thread for each core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Python would look through all that is left for cycles before the process ends.
atexit.register(gc.freeze)


class _Commands(click.Group):
    """A group that says our errors in one line, and imports a command when it is asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return find(name)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except SpamfilterError as error:
            for line in str(error).split("\n"):
                click.echo(f"spamfilter: {harmless(line)}", err=True)
            sys.exit(error.exit_code)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # somebody has read enough; click ends quietly
            click.echo(harmless(f"spamfilter: {error.filename or 'output'}: {error.strerror}"), err=True)
            sys.exit(2)
        except KeyboardInterrupt:
            sys.exit(130)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(
    __version__,
    prog_name="spamfilter",
    message=f"%(prog)s %(version)s, Python {platform.python_version()}, judging {in_words()}",
)
@click.option("--config", "file", type=click.Path(path_type=Path), help="The configuration file; see sample-config.")
@click.pass_context
def main(context: click.Context, file: Path | None) -> None:
    """A spam filter in front of your mail server: relays, judges, explains, learns.

    Without --config: the file named by SPAMFILTER_CONFIG, else /etc/spamfilter/spamfilter.toml if there
    is one, else defaults. Any key can be set in the environment, as in SPAMFILTER_VERDICT__SPAM=0.95.
    """
    context.obj = file
