"""The commands `web` and `web-password`: run the web page, make a line for its accounts."""

import signal
import sys
from pathlib import Path

import click

from spamfilter.commands.command import check_not_lost, settings_of
from spamfilter.errors import InputError
from spamfilter.web.accounts import ROLES, Role, line_of


@click.command("web-password")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), default="label", show_default=True, help="What the account may do.")
def web_password(name: str, role: Role) -> None:
    """Read a password and print the line of an account for the file that [web] accounts names.

    On a terminal it asks twice; otherwise it reads the first line of standard input.

    Example: spamfilter web-password alice --role administer >> /etc/spamfilter/accounts
    """
    try:
        if sys.stdin.isatty():
            password: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        else:
            password = sys.stdin.readline().rstrip("\r\n")
            if not password:
                raise InputError("standard input: no password; type one, or pipe one in")
        click.echo(line_of(name, role, password))
    except UnicodeError:
        raise InputError("standard input: the password is not in the characters of the locale; send UTF-8") from None


@click.command()
@click.pass_obj
def web(file: Path | None) -> None:
    """Serve the web page at [web] listen until SIGTERM: report, search, review, marks, doctor.

    Run it as the user of the relay: it reads the database, and marks through the relay's feedback socket.

    Example: spamfilter web
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # until the page can obey; it would end a start
    try:
        from spamfilter.web.server import serve
    except ModuleNotFoundError as error:
        raise InputError(f"the web page needs {error.name}: in the checkout, .venv/bin/pip install '.[web]'") from None
    settings = settings_of(file)
    check_not_lost(settings)
    serve(settings, file)
