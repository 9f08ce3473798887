"""Ids: new ones sort by time, and are found in texts that quote them."""

import re
import time
from datetime import UTC, datetime

import pytest

from spamfilter.system.ids import ID_LENGTH, first_id, id_in, id_of, new_id

ID = "01KAH3V5E8M6Q2T0J9Z4R7X1CN"
OTHER = "01KAH3V5E8M6Q2T0J9Z4R7X1CP"


def test_new_ids_are_ids_that_differ_and_sort_by_time() -> None:
    first = new_id()
    time.sleep(0.002)
    rest = {new_id() for _ in range(1000)}
    assert len(rest) == 1000
    assert all(id_of(id) == id_in(id) == id for id in (first, *rest))
    assert first < min(rest)


@pytest.mark.parametrize("year", [2, 1969, 1970])
def test_no_mail_came_before_the_clock_of_ids_begins(year: int) -> None:
    assert first_id(datetime(year, 1, 1, tzinfo=UTC)) == "0" * ID_LENGTH


@pytest.mark.parametrize("text", [ID, ID.lower(), ID[:13] + ID[13:].lower()], ids=["upper", "lower", "mixed"])
def test_an_id_is_one_in_either_case(text: str) -> None:
    assert id_of(text) == id_in(text) == ID


@pytest.mark.parametrize("text", ["OLJHI", "oijhl", "0ljhI"])
def test_letters_that_look_like_digits_are_read_as_these(text: str) -> None:
    stored = ID[:21] + "01JH1"
    assert id_of(ID[:21] + text) == id_in(ID[:21] + text) == stored


def test_in_a_longer_text_an_id_was_not_typed() -> None:
    assert id_in(f"{ID} INCOMPREHENSIBILITIESOFALL") == ID


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param(ID[1:], id="a-letter-less"),
        pytest.param(ID + "0", id="a-letter-more"),
        pytest.param(ID[:-1] + "U", id="U-is-none-of-the-letters"),
        pytest.param(ID[:-1] + "\u017f", id="a-letter-whose-capital-is-S"),
        pytest.param(ID[:-2] + "\xdf", id="a-letter-with-two-capitals"),
        pytest.param(ID[:-1] + "\u0663", id="a-digit-of-another-script"),
        pytest.param(ID + "\n", id="a-line-end-after-it"),
    ],
)
def test_what_only_resembles_an_id_is_none(text: str) -> None:
    assert id_of(text) == ""
    assert len(ID) == ID_LENGTH


@pytest.mark.parametrize(
    ("text", "id"),
    [
        pytest.param(f"X-Spamfilter-Id: {ID}", ID, id="header-field"),
        pytest.param(f"x-spamfilter-id:{ID.lower()}\r\n", ID, id="header-field-in-lower-case"),
        pytest.param(f"550 5.7.1 Refused as spam ({ID})", ID, id="bounce"),
        pytest.param(f"2026-03-01 12:00  spam  cli by ann  {ID}  herons", ID, id="report"),
        pytest.param(f"<{ID}>, again {ID.lower()}", ID, id="twice-the-same"),
        pytest.param(f"{ID} and {OTHER}", "", id="two"),
        pytest.param(f"x{ID}", "", id="within-a-word"),
        pytest.param(f"{ID}{ID}", "", id="a-longer-word"),
        pytest.param("no id here", "", id="none"),
        pytest.param("", "", id="empty"),
    ],
)
def test_the_one_id_of_a_text_is_found(text: str, id: str) -> None:
    assert id_in(text) == id


def test_a_long_text_is_searched_in_time() -> None:
    assert id_in("0" * 10**6 + " " + ID + " " + "A" * 10**6) == ID
    assert re.fullmatch("[0-9A-Z]{26}", id_in(" ".join([ID] * 10_000)))
