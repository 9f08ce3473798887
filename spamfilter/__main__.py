"""`python -m spamfilter` is the command `spamfilter`."""

from spamfilter.cli import main

main(prog_name="spamfilter")
