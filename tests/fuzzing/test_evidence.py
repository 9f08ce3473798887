"""Every seed, and every input that once broke something, through its target, without atheris."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzzing.target import Run
from tests.fuzzing.targets import EVIDENCE, TARGETS, target

CASES = [(name, path) for name in TARGETS for path in sorted((EVIDENCE / name).iterdir())]


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    with target(request.param)() as run:
        yield run


@pytest.mark.parametrize(("run", "path"), CASES, indirect=["run"], ids=lambda case: getattr(case, "name", case))
def test_evidence_breaks_nothing(run: Run, path: Path) -> None:
    run(path.read_bytes())


def test_each_folder_of_evidence_is_of_a_target() -> None:
    assert {path.name for path in EVIDENCE.iterdir()} == set(TARGETS)
