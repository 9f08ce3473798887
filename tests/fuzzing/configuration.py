"""Any bytes as a configuration file, and as variables of the environment: settings, or the one error that says why.

The first NUL ends the file; after it NUL separates variables, as in the environment itself.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spamfilter.config.settings import PREFIX, Settings, load
from spamfilter.errors import ConfigError
from tests.fuzzing.target import Run


@contextmanager
def target() -> Iterator[Run]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        file = Path(folder, "x.toml")

        def run(data: bytes) -> None:
            text, *variables = data.split(b"\0")
            file.write_bytes(text)
            named = (variable.decode("utf-8", "surrogateescape").partition("=") for variable in variables)
            environ = {PREFIX + name.upper(): value for name, _, value in named}
            try:
                settings = load(file, environ)
            except ConfigError as error:
                sentences = str(error)
                assert sentences
                assert all(str(file) in line or PREFIX in line for line in sentences.split("\n"))
                return
            assert isinstance(settings, Settings)
            settings.policy()
            settings.voices()
            settings.warnings()
            settings.reloaded(Settings())
            assert settings.relay.networks() is not None
            assert load(file, environ) == settings

        yield run
