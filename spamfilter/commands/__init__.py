"""COMMANDS: what can be typed behind `spamfilter`; each one function, each with an example in its help.

A command is imported when it is asked for: one that runs at every click must not wait for what others need.
Imports: every room. Start with command, which has what all of them share, then judging for one of them.
"""

from importlib import import_module

import click

from spamfilter.system.garbage_collection import unsearched

COMMANDS = {
    "serve": "serving.serve",
    "train": "training.train",
    "mark-spam": "marking.mark_spam",
    "mark-ham": "marking.mark_ham",
    "forget": "marking.forget",
    "quarantine": "quarantining.quarantine",
    "review": "reviewing.review",
    "judge": "judging.judge",
    "stats": "reporting.stats",
    "doctor": "examining.doctor",
    "evaluate": "evaluating.evaluate",
    "migrate": "upkeep.migrate",
    "retrain": "upkeep.retrain",
    "backup": "upkeep.backup",
    "check-config": "upkeep.check_config",
    "sample-config": "upkeep.sample_config",
    "web": "serving_pages.web",
    "web-password": "serving_pages.web_password",
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
