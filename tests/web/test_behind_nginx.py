"""The pages behind nginx, with the lines that docs/web.md has for it."""

import base64
import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.servers import await_start, free_port, workshop
from tests.support.certificates import client_context, write_certificate
from tests.support.real import require
from tests.web.pages import Browser, Site, mail_of, site

PAGE = (Path(__file__).parents[2] / "docs" / "web.md").read_text(encoding="utf-8")
PLAIN, SIGNED_IN = re.findall(r"^    location / {\n(?:     .*\n)+    }\n", PAGE, re.MULTILINE)
"""The lines of docs/web.md for accounts that sign in at the page, and at the proxy."""
USERS = {"lena": "of nginx", "mallory": "of nginx, too", "j\xf6rg": "of nginx, as UTF-8"}
ELSEWHERE = "127.0.0.2"
"""An address of this host that is no proxy's."""

CONFIGURATION = """
daemon off; user root; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
events {{ }}
http {{
    access_log off;
    client_body_temp_path {folder}/1; proxy_temp_path {folder}/2; fastcgi_temp_path {folder}/3;
    uwsgi_temp_path {folder}/4; scgi_temp_path {folder}/5;
    server {{
        listen 127.0.0.1:{port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};
        {location}
    }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, made: Site, lines: str) -> Iterator[Browser]:
    """A browser that talks to the page through nginx with these lines."""
    program = require("nginx", "nginx-light")
    folder.mkdir()
    users = folder / "users"
    users.write_text("".join(f"{name}:{{PLAIN}}{password}\n" for name, password in USERS.items()), encoding="utf-8")
    lines = lines.replace("127.0.0.1:8725", f"127.0.0.1:{made.port}")
    lines = lines.replace("/etc/nginx/spamfilter.htpasswd", str(users))
    assert str(made.port) in lines
    certificate, key = write_certificate(folder)
    port, file = free_port(), folder / "nginx.conf"
    file.write_text(CONFIGURATION.format(folder=folder, port=port, certificate=certificate, key=key, location=lines))
    command = [program, "-p", str(folder), "-c", str(file), "-e", str(folder / "error.log")]
    with (folder / "said").open("wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as process:
        try:
            await_start(process, (folder / "pid").exists, lambda: (folder / "said").read_text())
            yield Browser(port, tls=client_context(folder), address=ELSEWHERE)
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with workshop() as made:
        yield made


def basic(name: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{USERS[name]}".encode()).decode()}


def test_a_user_signs_in_and_marks_through_the_proxy(folder: Path) -> None:
    settings = {"proxy_addresses": ["127.0.0.1/32"]}
    with site(folder / "plain", settings) as made, nginx(folder / "plain-nginx", made, PLAIN) as browser:
        id = made.send(mail_of("one", "Through nginx", "some words of a mail"))
        assert browser.get("/").fields["location"] == "/login?next=/"
        set_ = browser.sign_in("lena").fields["set-cookie"].split("\n")[0]
        assert re.match(r"__Host-session=\S+; HttpOnly; Path=/; SameSite=strict; Secure", set_), set_
        assert browser.submit("/", f"/messages/{id}/mark", label="spam").status == 303
        assert "learnt as spam" in browser.get("/").words
        liar = Browser(browser.port, {"X-Forwarded-For": "198.51.100.1"}, tls=browser.tls, address=ELSEWHERE)
        assert liar.sign_in("lena", "wrong wrong").status == 403
        assert f"signing in failed: 'lena' from {ELSEWHERE}" in made.log()


def test_who_has_signed_in_at_the_proxy_is_who_it_says(folder: Path) -> None:
    settings = {"proxy_header": "X-Remote-User", "proxy_addresses": ["127.0.0.1/32"]}
    with site(folder / "named", settings) as made, nginx(folder / "named-nginx", made, SIGNED_IN) as browser:
        assert browser.get("/").status == 401
        for forged in ({}, {"X-Remote-User": "anna"}):
            browser.fields, browser.cookies = {**basic("lena"), **forged}, {}
            assert "lena Sign out" in browser.get("/").words
            assert browser.get("/doctor").status == 403
            assert browser.get("/api/messages").status == 200
            assert browser.get("/api/doctor").status == 403
        browser.fields, browser.cookies = basic("mallory"), {}
        assert browser.get("/").status == 403
        with made.accounts.open("a", encoding="utf-8") as accounts:
            accounts.write("j\xf6rg:label:-\n")
        browser.fields, browser.cookies = basic("j\xf6rg"), {}
        assert "j\xf6rg Sign out" in browser.get("/").words
        past = Browser(made.port, {"X-Remote-User": "anna"}, address=ELSEWHERE)
        assert past.get("/").fields["location"] == "/login?next=/"
        assert past.get("/api/messages").status == 401
