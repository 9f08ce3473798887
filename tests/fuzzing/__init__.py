"""Fuzz targets: one file for each kind of input that strangers, users or neighbours send.

A target takes any bytes and raises where a guarantee does not hold. TARGETS names them. `python -m tests.fuzzing NAME`
runs one under atheris, which looks for inputs that reach new lines; benchmarks/fuzz.py counts a million runs of each.
tests/evidence/NAME/ holds the seeds, and every input that once broke something; plain pytest replays them.
"""
