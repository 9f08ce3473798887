"""Any bytes as what `train` reads: the first byte says which of mbox, Maildir, index and single file."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spamfilter.errors import InputError, NotMail
from spamfilter.learning.bulk.labelled_mail import find_indexed, interleaved
from spamfilter.mail.mailboxes import find
from tests.fuzzing.target import Run

KINDS = (b"m", b"d", b"i", b"e")


def _mbox(folder: Path, data: bytes) -> None:
    file = folder / "mbox"
    file.write_bytes(data)
    try:
        mails = find(file)
    except InputError:
        assert not data
        return
    try:
        read = [mail.read() for mail in mails]
    except NotMail:
        return
    assert len({mail.name for mail in mails}) == len(mails)
    quotes = data.count(b">From ") + data.count(b">>From ")
    assert len(data) - quotes - data.count(b">") <= sum(map(len, read)) <= len(data)
    if b">" not in data:
        assert b"".join(read) == data


def _maildir(folder: Path, data: bytes) -> None:
    """A file of this name in a Maildir; where there can be none, nothing is tried."""
    name, _, content = data.partition(b"\n")
    for place in ("cur", "new", "tmp"):
        (folder / place).mkdir(exist_ok=True)
    file = folder / "cur" / name.replace(b"/", b"_").decode("utf-8", "surrogateescape")[:120]
    try:
        file.write_bytes(content)
    except (OSError, ValueError):
        return
    try:
        mails = find(folder) if content and not name.startswith(b".") else []
        assert all(str(mail.name).startswith(str(file)) for mail in mails)
        with suppress(NotMail):
            assert sum(len(mail.read()) for mail in mails) <= len(content)
        assert len(interleaved(mails, mails)) == 2 * len(mails)
    finally:
        file.unlink()


def _index(folder: Path, data: bytes) -> None:
    index = folder / "index"
    index.write_bytes(data)
    (folder / "one").write_bytes(b"Subject: one\n\n")
    found = []
    with suppress(InputError):
        found = find_indexed(index)
    assert len(found) <= data.count(b" ")
    for label, mail in found[:5]:
        assert label in ("ham", "spam")
        # Any path may be named, a device, too; what is read here lies in the folder.
        if Path(mail.name).parent == folder:
            with suppress(InputError):
                mail.read()


def _single(folder: Path, data: bytes) -> None:
    file = folder / "one.eml"
    file.write_bytes(data)
    with suppress(InputError):
        for mail in find(file):
            mail.read()


@contextmanager
def target() -> Iterator[Run]:
    kinds = dict(zip(KINDS, (_mbox, _maildir, _index, _single), strict=True))
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        folders = {kind: Path(name, kind.decode()) for kind in KINDS}
        for folder in folders.values():
            folder.mkdir()

        def run(data: bytes) -> None:
            kind = data[:1] if data[:1] in kinds else KINDS[0]
            kinds[kind](folders[kind], data[1:])

        yield run
