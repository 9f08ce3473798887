"""Compiles the helpers when the package is built or installed: a hook of hatchling.

Without a C compiler or Python's headers the package is built without them, and is slower but the same. SPAMFILTER_PLAIN
in the environment builds it so on purpose.
"""

import os
import shlex
import subprocess
import sysconfig
import zlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HERE = Path(__file__).parent
NAMES = ("message", "tokens", "scores", "learning")
HEADERS = ("arithmetic.h", "table.h")


def compiled(name: str) -> Path | None:
    """The library beside its source, made anew; None if it cannot be made."""
    library = HERE / f"_{name}{sysconfig.get_config_var('EXT_SUFFIX')}"
    source = HERE / f"{name}.c"
    unfinished = library.with_suffix(f".{os.getpid()}")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    # Without fused operations, which round once where Python rounds twice; nobody asks for errno.
    options = ["-O2", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", f"-I{sysconfig.get_path('include')}"]
    sources = b"".join((HERE / each).read_bytes() for each in (*HEADERS, source.name))
    options.append(f"-DSOURCE={zlib.crc32(sources)}u")
    command = [*compiler, *options, str(source)]
    try:
        subprocess.run([*command, "-o", str(unfinished)], check=True, capture_output=True, text=True)  # noqa: S603 - the compiler of this Python
    except (OSError, subprocess.CalledProcessError) as error:
        unfinished.unlink(missing_ok=True)
        reason = error.stderr if isinstance(error, subprocess.CalledProcessError) else error
        print(f"spamfilter: built without the compiled helper for {name}, which makes it slower: {reason}")
        return None
    unfinished.replace(library)
    return library


class CompiledHook(BuildHookInterface[Any]):
    """Called by hatchling for each wheel, editable ones too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("SPAMFILTER_PLAIN"):
            return
        for library in filter(None, map(compiled, NAMES)):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["artifacts"].append(f"spamfilter/compiled/{library.name}")
