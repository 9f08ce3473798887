"""Do the tests notice when the code is wrong? Cosmic Ray changes one place at a time, and a test must fail.

The modules are those that guard mail and counts; each is tried with its own tests, in a copy of the tree. A mutant that
survives is a gap in the tests, or changes nothing that can be observed: its line says where to look. `tried` is below
`mutants` where --mutants or --minutes ended it; those tried are a random sample.

    pip install -e '.[mutation]'
    python benchmarks/mutation.py [--mutants N] [--minutes M] [--result FILE] [MODULE ...]

Tests of relay/ start real servers and take the most time; some need root, as in CI.
"""

import argparse
import contextlib
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast, get_ast_from_path
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator, operator_names
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome
from results import write_result

ROOT = Path(__file__).parents[1]
MODULES = {
    "mail/line_ends": "mail/test_line_ends.py",
    "mail/tagging": "mail/test_tagging.py",
    "mail/message": "mail/test_message.py",
    "bayes/counts": "bayes/test_counts.py bayes/test_count_table.py bayes/test_token_arrays.py",
    "learning/mark_lookup": "learning/test_mark_lookup.py",
    "learning/marks": "learning/test_marks.py",
    "stores/sql/ledger_writing": "stores/test_contract.py stores/test_ledger_contract.py stores/test_sql.py",
    "relay/delivery": "relay/smtp/test_proxy.py faults/test_next_hop.py",
    "relay/session/mail": "relay/test_session.py relay/smtp/test_proxy.py",
    "relay/smtp/incoming": "relay/smtp/test_proxy.py hostile/test_sizes_smtp.py",
    "relay/milter/session": "relay/milter/test_milter.py relay/milter/test_peers.py",
    "relay/limits/budget": "relay/limits/test_memory.py hostile/test_exhaustion_smtp.py",
    "relay/journal": "relay/test_journal.py",
    "relay/next_hops/smtp": "relay/next_hops/test_smtp.py faults/test_next_hop.py faults/test_next_hop_tls.py",
    "relay/quarantine/quarantine": "relay/test_quarantine.py",
    "service/expiry": "service/test_expiry.py",
}
"""Module of spamfilter/ -> its files of tests/, quickest first: the first test that fails ends a run."""
OPERATORS = re.compile(
    "core/("
    "AddNot|ReplaceUnaryOperator_Delete_Not|Replace(And|Or|True|False|Break|Continue)With.*|ExceptionReplacer|"
    "NumberReplacer|ZeroIterationForLoop|"
    "ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Is_IsNot|IsNot_Is|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt)|"
    "ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_Mul|BitAnd_BitOr))"
)
"""One replacement for each sign. Cosmic Ray's other hundred put eleven signs for each `+`, one as good as the other,
and break the `|` of annotations, which every test notices."""
STATEMENTS = ("atom_expr", "expr_stmt", "raise_stmt", "return_stmt")
"""parso's names for calls, assignments, `raise` and `return`."""
DIGITS = 2
"""Longer numbers are sizes and times: one byte or one second more is no fault that a test should see."""
PYTEST = "-m pytest -q -x -p no:cacheprovider -p pytest_asyncio.plugin -p _hypothesis_pytestplugin"
"""With PYTEST_DISABLE_PLUGIN_AUTOLOAD: the plugins that are not needed take half of the time of a short run."""


class DropStatement:
    """An operator that Cosmic Ray does not have: a simple statement becomes `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type == "simple_stmt" and node.children[0].type in STATEMENTS:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        nothing = get_ast("pass").children[0]
        nothing.prefix = node.get_first_leaf().prefix
        node.children[0] = nothing
        return node


@dataclass(frozen=True)
class Mutant:
    file: Path
    operator: Any
    occurrence: int
    line: int


def mutants(file: Path) -> list[Mutant]:
    """All mutants of a module."""
    tree = get_ast_from_path(file)
    found = []
    for operator in [
        DropStatement(),
        *(get_operator(name)() for name in operator_names() if OPERATORS.fullmatch(name)),
    ]:
        places = [(node, start) for node in ast_nodes(tree) for start, _ in operator.mutation_positions(node)]
        found += [
            Mutant(file, operator, occurrence, line)
            for occurrence, (node, (line, _)) in enumerate(places)
            if node.type != "number" or len(node.value) <= DIGITS
        ]
    return found


def survivors(copy: Path, name: str, most: int, end: float) -> tuple[int, int, list[str]]:
    """How many mutants there are, how many were tried, and the lines of those that no test has noticed."""
    file = copy / "spamfilter" / f"{name}.py"
    command = f"{sys.executable} {PYTEST} " + " ".join(f"tests/{test}" for test in MODULES[name].split())
    began = time.monotonic()
    outcome, output = run_tests(command, 900)
    if outcome is not TestOutcome.SURVIVED:
        raise SystemExit(f"{name}: the tests fail without a mutant:\n{output[-2000:]}")
    limit = 20 + 3 * (time.monotonic() - began)
    every = mutants(file)
    random.Random(0).shuffle(every)  # so that a limit leaves out no kind of mutant
    tried, lines = 0, []
    for mutant in every[:most]:
        if time.monotonic() > end:
            break
        source = file.read_text(encoding="utf-8").splitlines()
        with use_mutation(file, mutant.operator, mutant.occurrence):
            now = file.read_text(encoding="utf-8").splitlines()
            outcome, _ = run_tests(command, limit)
        tried += 1
        if outcome is TestOutcome.SURVIVED:
            changed = next((line for line, before in zip(now, source, strict=False) if line != before), "")
            lines.append(f"{name}.py:{mutant.line}: `{source[mutant.line - 1].strip()}` -> `{changed.strip()}`")
            print(lines[-1], file=sys.stderr, flush=True)
    return len(every), tried, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"of {', '.join(MODULES)}; all by default")
    parser.add_argument("--mutants", type=int, default=100, help="at most this many of each module, by chance")
    parser.add_argument("--minutes", type=float, default=60, help="for all of them")
    parser.add_argument("--result", type=Path, help="write the table to this file, too")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    rows, lines = ["| module | mutants | tried | survived |", "|---|---|---|---|"], []
    with tempfile.TemporaryDirectory(prefix="sf-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".*"))
        os.environ |= {"PYTHONPATH": str(copy), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        with contextlib.chdir(copy):
            for name in arguments.modules or MODULES:
                if time.monotonic() > end:
                    break
                every, tried, surviving = survivors(copy, name, arguments.mutants, end)
                rows.append(f"| {name} | {every} | {tried} | {len(surviving)} |")
                lines += [f"- {line}" for line in surviving]
    text = "\n".join([*rows, "", *lines, ""])
    print(text)
    if arguments.result:
        result = arguments.result if arguments.result.is_absolute() else ROOT / arguments.result
        write_result(result, "Mutants that no test notices", __file__, text)


if __name__ == "__main__":
    main()
