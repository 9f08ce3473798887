"""Files that travel with the package are found by name, and nothing else is."""

import pytest

from spamfilter.errors import InputError
from spamfilter.shipped import FOLDERS, samples, shipped


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_shipped_folder_is_there(folder: str) -> None:
    assert shipped(folder).is_dir()


def test_every_sample_can_be_read() -> None:
    names = samples()
    assert names == sorted(set(names))
    assert {"config/spamfilter.toml", "systemd/spamfilter.service"} <= set(names)
    for name in names:
        assert shipped(name).read_text(encoding="utf-8").strip()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("config/none.toml", id="missing"),
        pytest.param("spamfilter/cli.py", id="another-folder"),
        pytest.param("config/../pyproject.toml", id="upwards"),
        pytest.param("config/../../etc/passwd", id="far-upwards"),
        pytest.param("/etc/passwd", id="absolute"),
        pytest.param("", id="nothing"),
        pytest.param(".", id="the-package-itself"),
    ],
)
def test_what_is_not_shipped_is_an_error_that_names_it(name: str) -> None:
    with pytest.raises(InputError, match="no such file comes with this package; `spamfilter sample-config --list`"):
        shipped(name)
