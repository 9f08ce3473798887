"""COMMANDS: what can be typed behind `spamfilter`; each one function, each with an example in its help.

A command is imported when it is asked for: one that runs at every click must not wait for what others need.
Imports: every room. Start with command, which has what all of them share, then judging for one of them.
"""

from importlib import import_module

import click

from spamfilter.system.garbage_collection import unsearched

COMMANDS = {
    "serve": "serve.serve",
    "train": "train.train",
    "mark-spam": "mark.mark_spam",
    "mark-ham": "mark.mark_ham",
    "forget": "mark.forget",
    "quarantine": "quarantine.quarantine",
    "review": "review.review",
    "judge": "judge.judge",
    "stats": "stats.stats",
    "doctor": "doctor.doctor",
    "evaluate": "evaluate.evaluate",
    "migrate": "maintenance.migrate",
    "retrain": "maintenance.retrain",
    "backup": "maintenance.backup",
    "check-config": "maintenance.check_config",
    "sample-config": "maintenance.sample_config",
    "web": "web.web",
    "web-password": "web.web_password",
}
"""Name -> module and function in this folder."""


def find(name: str) -> click.Command | None:
    """The command of a name, None if there is none."""
    if name not in COMMANDS:
        return None
    module, function = COMMANDS[name].split(".")
    with unsearched():
        found: click.Command = getattr(import_module(f"spamfilter.commands.{module}"), function)
    return found
