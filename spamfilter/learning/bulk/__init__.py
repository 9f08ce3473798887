"""Bulk training: many labelled mails from files and mailboxes, learnt at once.

Guarantee: a run that was stopped goes on where it stopped, and ends as if it had not been.
Imports: what learning imports. Start with training; labelled_mail finds the mails, reading_ahead makes tokens of them
in other processes, rounds goes over what is still judged badly, earlier_runs has what other runs have left.
"""
