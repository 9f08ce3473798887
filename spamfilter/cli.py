"""The program `spamfilter`: its commands, and its errors.

Exit codes: 0 done, 1 refused, 2 wrong usage or input, 75 try again, 130 interrupted.
An error that a user can correct is one line on standard error without control characters, never a traceback.
"""

import atexit
import gc
import io
import os
import platform
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import click

from spamfilter import __version__
from spamfilter.bayes.compiled import in_words
from spamfilter.commands import COMMANDS, find
from spamfilter.commands.command import CommandGroup
from spamfilter.errors import SpamfilterError
from spamfilter.system.screen import complain
from spamfilter.system.terminal import colours_wanted

# For numpy, which is imported later: its linear algebra, which is not used here, would start a thread for each core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Of a short command a seventh would be searches for reference cycles in what is imported, and stays; and before the
# process ends Python would search all objects once more.
gc.set_threshold(200_000)
atexit.register(gc.freeze)
# A stream that was closed before the start is None; it is as if it led to /dev/null.
for _name, _mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
    if getattr(sys, _name) is None:
        setattr(sys, _name, open(os.devnull, _mode, encoding="utf-8"))  # noqa: SIM115 - to the end of the process
# What the locale's characters cannot show is shown as an escape.
if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
    sys.stdout.reconfigure(errors="backslashreplace")


class _Commands(CommandGroup):
    """A group that prints our errors in one line, and imports a command only when it is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        return find(name)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        if "" in args:  # as of a script's variable that is not set: `--to ""` must not release to everybody
            context.fail("one of the words is empty; leave it out, or say what is meant")
        return super().parse_args(context, args)

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except SpamfilterError as error:
            for line in str(error).split("\n"):
                complain(line)
            sys.exit(error.exit_code)
        except UnicodeError:
            if "".join(sys.argv).isprintable():
                raise
            complain("a text on the command line is not UTF-8")
            sys.exit(2)
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a further one would be a traceback of Python's way out
            sys.exit(130)

    def main(self, *args: Any, **more: Any) -> Any:
        os.umask(os.umask(0o077) & 0o077)  # one like 0177, for files alone, would close our folders to ourselves
        try:
            return super().main(*args, **more)
        except OSError as error:  # but of a pipe that its reader has closed: there click exits quietly
            with suppress(OSError):  # the disk of standard error may be full, too
                complain(f"{error.filename or 'output'}: {error.strerror}")
            sys.exit(2)
        finally:
            for stream in (sys.stdout, sys.stderr):
                _give_up(stream)


def _give_up(stream: TextIO) -> None:
    """Drop what cannot be written: Python would try again as it ends, complain, and exit with 120."""
    try:
        stream.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
    context.color = None if colours_wanted() else False
