"""Files that are installed with the package are found by name, and no others."""

import pytest

from spamfilter.system.packaged_files import samples, shipped


@pytest.mark.parametrize("folder", ["config", "migrations", "systemd"])
def test_every_shipped_folder_is_there(folder: str) -> None:
    assert shipped(folder).is_dir()


def test_every_sample_can_be_read() -> None:
    names = samples()
    assert names == sorted(set(names))
    assert {"config/spamfilter.toml", "systemd/spamfilter.service"} <= set(names)
    for name in names:
        assert shipped(name).read_text(encoding="utf-8").strip()
