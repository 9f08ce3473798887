"""Compiles the helpers when the package is built or installed: a hook of hatchling.

Without a C compiler or Python's headers the package is built without them: it is slower and gives the same results. The
reason is kept in NOT_BUILT, for `doctor` and `--version`. CC, CFLAGS and LDFLAGS are honoured. Every warning is an
error, since an undeclared function returns an int: half of a hash. With SPAMFILTER_PLAIN in the environment no helpers
are built.
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
NAMES = ("tokens", "scores")
SOURCES = ("arithmetic.h", "table.h", "tokens.c", "scores.c")
NOT_BUILT = "not-built.txt"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
"""The ending of libraries for this Python, so that one folder can have those of several versions."""
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter")  # every function is handed its module
# Without fused operations, which round once where Python rounds twice. No code reads errno.
OPTIONS = ("-O2", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared")


class NotBuilt(Exception):
    """Why a helper could not be compiled."""


def compiled(name: str) -> Path:
    """Compile a helper; returns its library, which is not in its place yet. Raises NotBuilt."""
    library = HERE / f"_{name}{SUFFIX}.{os.getpid()}"
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    flags = shlex.split(os.environ.get("CFLAGS", "")), shlex.split(os.environ.get("LDFLAGS", ""))
    checksum = zlib.crc32(b"".join((HERE / source).read_bytes() for source in SOURCES))
    # As system headers: warnings about Python's own headers are ignored.
    headers = ("-isystem", sysconfig.get_path("include"))
    command = [*compiler, *OPTIONS, *flags[0], *WARNINGS, *headers, f"-DSOURCE={checksum}u", str(HERE / f"{name}.c")]
    try:
        subprocess.run([*command, *flags[1], "-o", str(library)], check=True, capture_output=True, text=True)  # noqa: S603 - the compiler of this Python
    except OSError as error:
        raise NotBuilt(f"no C compiler when spamfilter was installed: {compiler[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        library.unlink(missing_ok=True)
        lines = [line for line in error.stderr.splitlines() if "error" in line] or error.stderr.splitlines() or ["?"]
        raise NotBuilt(f"{name}.c could not be compiled when spamfilter was installed: {lines[0].strip()}") from error
    return library


def _all_compiled() -> list[Path]:
    if os.environ.get("SPAMFILTER_PLAIN"):
        raise NotBuilt("SPAMFILTER_PLAIN was set when spamfilter was installed")
    libraries: list[Path] = []
    try:
        for name in NAMES:
            libraries.append(compiled(name))
    except NotBuilt:
        for library in libraries:
            library.unlink()
        raise
    return libraries


class CompiledHook(BuildHookInterface[Any]):
    """Called by hatchling for each wheel, editable ones too."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        for old in (*(HERE / f"_{name}{SUFFIX}" for name in NAMES), HERE / NOT_BUILT):
            old.unlink(missing_ok=True)
        try:
            libraries = _all_compiled()
        except NotBuilt as reason:
            (HERE / NOT_BUILT).write_text(f"{reason}\n")
            build_data["artifacts"].append(f"spamfilter/bayes/compiled/{NOT_BUILT}")
            print(f"spamfilter: judging will take four times as long: {reason}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        for library in libraries:
            placed = library.rename(library.with_suffix(""))
            build_data["artifacts"].append(f"spamfilter/bayes/compiled/{placed.name}")
