"""The commands of `spamfilter`, each a function with an example in its help. COMMANDS is their table.

A command is imported only when it is called, because some run at every click in a mail program and must start fast.
Imports: every room. Start with command, which has the parts that all share, then judge for one of them.
"""

from importlib import import_module

import click

COMMANDS = {
    "serve": "serve.serve",
    "train": "train.train",
    "mark-spam": "mark.mark_spam",
    "mark-ham": "mark.mark_ham",
    "forget": "mark.forget",
    "quarantine": "quarantine.quarantine",
    "digest": "quarantine.digest",
    "review": "review.review",
    "search": "search.search",
    "show": "search.show",
    "allow": "lists.allow",
    "block": "lists.block",
    "lists": "lists.lists",
    "unlist": "lists.unlist",
    "judge": "judge.judge",
    "word": "judge.word",
    "stats": "stats.stats",
    "doctor": "doctor.doctor",
    "evaluate": "evaluate.evaluate",
    "classify": "classify.classify",
    "migrate": "maintenance.migrate",
    "retrain": "maintenance.retrain",
    "import": "train.import_",
    "export": "train.export",
    "backup": "maintenance.backup",
    "check-config": "maintenance.check_config",
    "sample-config": "maintenance.sample_config",
    "web": "web.web",
    "web-password": "web.web_password",
}
"""Name -> module and function in this folder."""


def find(name: str) -> click.Command | None:
    if name not in COMMANDS:
        return None
    module, function = COMMANDS[name].split(".")
    found: click.Command = getattr(import_module(f"spamfilter.commands.{module}"), function)
    return found
