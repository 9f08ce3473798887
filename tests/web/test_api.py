"""The API of a running relay: each operation is allowed for its roles, and for no other."""

import base64
import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spamfilter.web.api.description import ID_SCHEMA, description
from spamfilter.web.api.operations import OPERATIONS
from spamfilter.web.site.throttle import OF_ADDRESS
from tests.integration.servers import workshop
from tests.support.real import missing
from tests.web.pages import ACCOUNTS, PASSWORD, Answer, Browser, Site, mail_of, site

BODIES: dict[str, dict[str, object]] = {
    "mark": {"label": "spam"}, "skip": {"skip": True}, "release": {}, "forget": {"by": "nobody"}, "probe": {},
}  # fmt: skip


@pytest.fixture(scope="module")
def pages() -> Iterator[Site]:
    with workshop() as folder, site(folder / "s", {"proxy_addresses": ["127.0.0.1/32"]}) as made:
        yield made


@pytest.fixture(scope="module")
def sent(pages: Site) -> str:
    return pages.send(mail_of("one", "For programs", "some words of a mail for programs"))


def client(pages: Site, name: str, password: str = PASSWORD, **fields: str) -> Browser:
    secret = base64.b64encode(f"{name}:{password}".encode()).decode()
    return pages.browser(Authorization=f"Basic {secret}", **fields)


def asked(browser: Browser, method: str, path: str, body: object = None, **fields: Any) -> Answer:
    if method == "GET":
        return browser.ask("GET", path, **fields)
    return browser.ask("POST", path, json.dumps(body).encode(), **{"content_type": "application/json", **fields})


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.answer.__name__)
def test_an_operation_is_for_its_role_and_answers_as_described(pages: Site, sent: str, operation: Any) -> None:
    path = operation.path.replace("{id}", sent)
    roles = list(ACCOUNTS.values())
    body = BODIES.get(operation.answer.__name__)
    for name, role in ACCOUNTS.items():
        answer = asked(client(pages, name), operation.method, path, body)
        found = json.loads(answer.body)
        assert answer.fields["content-type"] == "application/json"
        if roles.index(role) < roles.index(operation.role):
            assert (answer.status, "this needs the role" in found["error"]) == (403, True)
        elif operation.answer.__name__ == "release":  # it is not in quarantine
            assert (answer.status, "not in the quarantine" in found["error"]) == (404, True)
        else:
            assert (answer.status, set(operation.result) <= found.keys()) == (200, True), found
    assert asked(pages.browser(), operation.method, path, body).status == 401


def test_a_mark_is_in_the_history_and_can_be_forgotten(pages: Site) -> None:
    id = pages.send(mail_of("two", "Two", "other words of another mail"))
    lena = client(pages, "lena")
    assert json.loads(asked(lena, "POST", f"/api/messages/{id}/mark", {"label": "ham"}).body)["changed"]
    found = json.loads(asked(lena, "GET", f"/api/messages/{id}").body)
    assert (found["label"], found["history"][0]["by"], found["history"][0]["source"]) == ("ham", "lena", "web")
    assert json.loads(asked(lena, "POST", f"/api/messages/{id}/mark", {"label": None}).body)["changed"]
    listed = json.loads(asked(lena, "GET", "/api/messages?subject=two").body)["messages"]
    assert [(one["id"], one["label"]) for one in listed] == [(id, None)]


def test_a_fault_of_the_relays_database_is_none_of_the_request(pages: Site, sent: str) -> None:
    """Of the relay, which makes the mark, as of the page."""
    lena = client(pages, "lena")
    with closing(sqlite3.connect(pages.relay.state / "spamfilter.db", isolation_level=None)) as database:
        database.execute("CREATE TRIGGER broken BEFORE INSERT ON ledger BEGIN SELECT RAISE(ABORT, 'is broken'); END")
        try:
            answer = asked(lena, "POST", f"/api/messages/{sent}/mark", {"label": "ham"})
        finally:
            database.execute("DROP TRIGGER broken")
    assert (answer.status, "is broken" in json.loads(answer.body)["error"]) == (503, True)


def test_a_session_of_the_pages_counts_nothing_here(pages: Site, sent: str) -> None:
    anna = pages.browser("anna")
    assert anna.get("/api/messages").status == 401
    assert asked(anna, "POST", f"/api/messages/{sent}/mark", {"label": "ham"}).status == 401


def test_a_form_of_another_site_does_nothing(pages: Site, sent: str) -> None:
    lena, path = client(pages, "lena"), f"/api/messages/{sent}/mark"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert asked(lena, "POST", path, {"label": "ham"}, content_type=kind).status == 415
    assert asked(lena, "POST", path, {"label": "ham"}, Sec_Fetch_Site="cross-site").status == 403


@pytest.mark.parametrize(
    "body", [{}, {"label": "x"}, {"label": 1}, {"label": "ham", "by": "x"}, [], None, "ham", {"label": {}}]
)
def test_a_body_that_is_not_as_described_is_refused(pages: Site, sent: str, body: object) -> None:
    answer = asked(client(pages, "lena"), "POST", f"/api/messages/{sent}/mark", body)
    assert (answer.status, list(json.loads(answer.body))) == (400, ["error"])


@pytest.mark.parametrize("query", ["days=0", "days=x", "days=1&days=2", "day=1", "days=%D9%A1", "days="])
def test_a_query_that_is_not_as_described_is_refused(pages: Site, query: str) -> None:
    assert client(pages, "laura").get(f"/api/report?{query}").status == 400


@pytest.mark.parametrize("name", ["class", "action", "least", "most", "unsure_first"])
def test_an_empty_value_is_none_but_of_a_text(pages: Site, name: str) -> None:
    assert client(pages, "laura").get(f"/api/messages?{name}=").status == 400
    assert client(pages, "laura").get("/api/messages?sender=&subject=&before=").status == 200


def test_a_wrong_password_is_no_account_and_soon_no_attempt(pages: Site) -> None:
    browser = client(pages, "anna", "wrong wrong", X_Forwarded_For="198.51.100.9")
    assert [browser.get("/api/doctor").status for _ in range(OF_ADDRESS)] == [401] * OF_ADDRESS
    assert browser.get("/api/doctor").status == 429
    for field in ("Basic", "Basic !", "Basic " + base64.b64encode(b"anna").decode(), "Bearer x", "Basic \u00e9"):
        assert pages.browser(Authorization=field).get("/api/messages").status == 401


def test_the_description_has_every_operation_and_every_operation_is_served(pages: Site, sent: str) -> None:
    served = json.loads(client(pages, "laura").get("/api/openapi.json").body)
    assert served == json.loads(json.dumps(description()))
    assert pages.browser().get("/api/openapi.json").status == 401
    named = {(method.upper(), path) for path, methods in served["paths"].items() for method in methods}
    assert named == {(one.method, one.path) for one in OPERATIONS}
    assert client(pages, "laura").ask("DELETE", f"/api/messages/{sent}").status == 405
    missed = client(pages, "laura").get("/api/nothing")
    assert (missed.status, json.loads(missed.body)) == (404, {"error": "Not Found"})


def test_schemathesis_finds_nothing(pages: Site, sent: str, tmp_path: Path) -> None:
    """What it makes of the description is answered as described, and never by a fault of ours."""
    try:
        import schemathesis  # noqa: F401 - it runs as a program
    except ImportError:
        missing("schemathesis is not installed: pip install schemathesis")
    schema = tmp_path / "openapi.json"
    schema.write_text(json.dumps(description()).replace(json.dumps(ID_SCHEMA), json.dumps({"enum": [sent]})))
    command = [
        sys.executable, "-m", "schemathesis.cli", "run", str(schema), "--url", f"http://127.0.0.1:{pages.port}",
        "--auth", f"anna:{PASSWORD}", "--phases", "coverage",
        "--checks", "all",
        "--request-timeout", "60", "--no-color", "--seed", "1", "--exclude-path", "/api/doctor",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"Tested: 9$", done.stdout, re.MULTILINE), done.stdout
    assert not re.search("Traceback", pages.log()), pages.log()[-3000:]
