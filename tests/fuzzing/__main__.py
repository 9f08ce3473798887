"""Fuzz one target under atheris: python -m tests.fuzzing NAME [OPTION OF LIBFUZZER]... [FOLDER OF INPUTS]...

Options of libFuzzer as they are: https://llvm.org/docs/LibFuzzer.html. The first folder takes new inputs, too.
"""

import gc
import sys

import atheris

INSTRUMENTED = ["spamfilter"]
"""Where new lines count."""


def main() -> None:
    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzzing.targets import target

        set_up = target(name)
    with set_up() as run:
        gc.freeze()  # what is set up stays; a million collections need not look at it
        atheris.Setup([sys.argv[0], *options], run)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
