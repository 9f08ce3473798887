"""The program on a pseudo-terminal, as a user sees it."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Mapping

from tests.support.program import COMMAND, Program


def shown(
    *words: object,
    columns: int = 80,
    environ: Mapping[str, str] | None = None,
    keys: bytes = b"",
    program: tuple[str, ...] = COMMAND,
) -> tuple[int, str]:
    """The exit code and what a terminal of this width shows of a command, with its escape sequences."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    running = Program(
        [*program, *map(str, words)],
        stdin=its, stdout=its, stderr=its, env={**plain, "TERM": "xterm", **(environ or {})},
    )  # fmt: skip
    os.close(its)
    os.write(ours, keys)
    text = b""
    try:
        while block := os.read(ours, 65536):
            text += block
    except OSError:  # Linux says so at the end
        pass
    finally:
        os.close(ours)
    return running.wait(60), text.decode().replace("\r\n", "\n")
