"""What a label does: one mark, bulk training, retraining, undoing; and why a verdict is as it is.

Each learning is one transaction of the store, exact to undo. A person's mark outranks rules and bulk training.
Imports: errors, system, mail, bayes, stores and config. Start with filter, which judges and learns; then marks.
"""
