"""COMMANDS: what can be typed behind `spamfilter`; each one function, each with an example in its help."""

import click

from spamfilter.commands import evaluating, marking, reporting, serving, training, upkeep

COMMANDS: tuple[click.Command, ...] = (
    serving.serve,
    training.train,
    marking.mark_spam,
    marking.mark_ham,
    marking.forget,
    marking.judge,
    reporting.stats,
    evaluating.evaluate,
    upkeep.migrate,
    upkeep.retrain,
    upkeep.backup,
    upkeep.check_config,
    upkeep.sample_config,
)
