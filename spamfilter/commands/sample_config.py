"""The command `sample-config`."""

import click

from spamfilter.errors import InputError
from spamfilter.system.packaged_files import samples, shipped


@click.command("sample-config")
@click.argument("name", default="config/spamfilter.toml")
@click.option("--list", "names", is_flag=True, help="Name all samples: for mail servers, systemd and monitoring, too.")
def sample_config(name: str, names: bool) -> None:
    """Print the sample configuration, or another sample that came with this version.

    Example: spamfilter sample-config > /etc/spamfilter/spamfilter.toml
    """
    if names:
        click.echo("\n".join(samples()))
        return
    if name not in samples():
        raise InputError(f"{name}: no such sample; `spamfilter sample-config --list` names them")
    click.echo(shipped(name).read_text(encoding="utf-8"), nl=False)
