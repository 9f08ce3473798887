"""The words that other filters find: of any mail valid UTF-8, and those that the real bogofilter finds."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spamfilter.bayes.imported import IMPORTED_TOKENS, bogofilter, spamassassin, spambayes
from spamfilter.mail.message import parse
from tests.support import real
from tests.support.made import some

MAIL = (
    b'From: "John Q. Doe" <john.doe@ex-ample.com>\nTo: bob@x.org\nSubject: Re: Hello World!! $100.50\n'
    b"Return-Path: <bounce-123@foo.com>\nMessage-ID: <abc123.def@host.com>\nX-Mailer: Foo Bar\n\n"
    b"Visit http://www.foo.com/a/b.html now_or_never it's $200 O7W!A9 1abc 10.1.2.3 supercalifragilistic\n"
)


@pytest.mark.parametrize("filter", IMPORTED_TOKENS)
@given(mail=st.binary(max_size=300))
@some(100)
def test_words_of_any_mail_are_utf_8(filter: str, mail: bytes) -> None:
    for word in IMPORTED_TOKENS[filter](parse(b"Subject: " + mail + b"\n\n" + mail)):
        word.decode()


def test_words_of_odd_mail_are_utf_8(corpus: Callable[[str], Path]) -> None:
    for file in sorted(corpus("nasty").rglob("*")):
        if file.is_file():
            message = parse(file.read_bytes())
            for tokens in IMPORTED_TOKENS.values():
                assert b"\xff" not in {word.decode() and word for word in tokens(message)}


def test_the_words_of_bogofilter_are_those_of_bogolexer() -> None:
    program = real.require("bogolexer", "bogofilter")
    said = subprocess.run([program, "-p"], input=MAIL, capture_output=True, check=True).stdout
    theirs = {bogofilter.counted(word) for word in said.splitlines()}
    assert set(bogofilter.tokens(parse(MAIL))) == theirs


RELAYED = (
    b"Return-Path: <bounce-123@foo.com>\n"
    b"Received: from helo.example (rdns.example [192.0.2.7]) by mx.example.org (Postfix) with ESMTP id 4AB12CD34EF\n"
    b"\tfor <bob@x.org>; Tue, 10 Apr 2007 13:34:07 -0400\n"
    b"Message-ID: <000801c77b95$a1b2c3d4$0100007f@host.com>\nX-MimeOLE: Produced By MimeOLE\nMime-Version: 1.0\n"
    b"Content-Type: text/plain; charset=utf-8\n"
    + MAIL.replace(b"Return-Path: <bounce-123@foo.com>\nMessage-ID: <abc123.def@host.com>\n", b"")
)
_TOKENIZE = r"""use strict; use Mail::SpamAssassin; my ($rules, $file) = @ARGV;
my $filter = Mail::SpamAssassin->new({rules_filename => $rules, site_rules_filename => "$rules/none",
  userprefs_filename => "/dev/null", local_tests_only => 1, dont_copy_prefs => 1, userstate_dir => $rules});
$filter->init(1); my ($bayes) = grep { ref($_) =~ /::Bayes$/ } @{$filter->{plugins}->{plugins}};
open my $in, "<:raw", $file or die; my $mail = $filter->parse(do { local $/; <$in> });
print "$_\n" for values %{$bayes->tokenize($mail, $bayes->get_body_from_msg($mail))};
"""


def test_the_words_of_spamassassin_are_those_of_its_bayes(tmp_path: Path) -> None:
    real.require("spamassassin", "spamassassin")
    (tmp_path / "10.cf").write_text("loadplugin Mail::SpamAssassin::Plugin::Bayes\nuse_bayes 1\nuse_learner 1\n")
    stop_words = Path("/usr/share/spamassassin/60_bayes_stopwords.cf")
    (tmp_path / stop_words.name).symlink_to(stop_words)
    (tmp_path / "mail").write_bytes(RELAYED)
    perl = ["perl", "-e", _TOKENIZE, str(tmp_path), str(tmp_path / "mail")]
    said = subprocess.run(perl, capture_output=True, check=True).stdout
    assert set(spamassassin.words(parse(RELAYED))) == set(said.splitlines())


def test_the_words_of_spamassassin_are_hashed() -> None:
    words = set(spamassassin.words(parse(MAIL)))
    assert {b"UD:www.foo.com", b"Hello", b"hello", b"H*F:D*ex-ample.com", b"H*Ad:U*bob", b"sk:superca"} <= words
    assert spamassassin.hashed(b"hello") in set(spamassassin.tokens(parse(MAIL)))
    assert spamassassin.hashed(b"hello") == b"d9aea9434d"  # the end of its SHA-1


def test_the_words_of_spambayes() -> None:
    words = set(spambayes.tokens(parse(MAIL)))
    assert {b"subject:Hello", b"from:addr:ex-ample.com", b"from:name:john q. doe", b"url:foo", b"skip:s 20"} <= words
    assert {b"x-mailer:foo bar", b"message-id:@host.com", b"header:to:1", b"proto:http", b"it's"} <= words
