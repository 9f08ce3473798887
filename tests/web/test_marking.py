"""The notice after a mark."""

import pytest

from spamfilter.bayes.labels import Label
from spamfilter.web.marking import notice


@pytest.mark.parametrize(
    ("label", "changed", "was", "again", "said"),
    [
        pytest.param("ham", True, None, None, '"Lunch": learnt as not spam; score 0.900 -> 0.200', id="new"),
        pytest.param(
            "ham", True, "spam", None, '"Lunch": learnt as not spam instead of spam; score 0.900 -> 0.200', id="other"
        ),
        pytest.param(
            "spam", True, "spam", None,
            "\"Lunch\": already learnt as spam, by nobody's mark; now recorded as your mark",
            id="nobodys",
        ),
        pytest.param("spam", False, "spam", None, '"Lunch": already learnt as spam; nothing changed', id="repeated"),
        pytest.param(
            None, True, "ham", None, '"Lunch": forgotten, was learnt as not spam; score 0.900 -> 0.200', id="forgotten"
        ),
        pytest.param(
            None, True, "spam", "ham",
            '"Lunch": forgotten, was learnt as spam, is again learnt as not spam; score 0.900 -> 0.200',
            id="learnt-again",
        ),
        pytest.param(None, False, None, None, '"Lunch": was not learnt', id="nothing-to-forget"),
    ],
)  # fmt: skip
def test_a_notice_names_the_mail_by_its_subject_and_ham_as_not_spam(
    label: Label | None, changed: bool, was: str | None, again: str | None, said: str
) -> None:
    done = {"changed": changed, "was": was, "again": again, "before": 0.9, "after": 0.2}
    assert notice("Lunch", label, done) == said
