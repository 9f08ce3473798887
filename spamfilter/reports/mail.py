"""Mails of ours, sent straight to the next hop: the relay does not judge them, and the journal has no entry."""

from collections.abc import Sequence
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP, SMTPUTF8
from email.utils import format_datetime, make_msgid

from spamfilter.config.addresses import mailbox
from spamfilter.errors import InputError, NextHopError, Refused, TryAgain
from spamfilter.relay.next_hops import NextHop, offer
from spamfilter.reports.html import report_html, whose
from spamfilter.reports.report import Report
from spamfilter.reports.text import report_text
from spamfilter.system.escaping import printable
from spamfilter.system.moments import day_text

WIDTH = 76
"""Columns of the text: few enough that no mail program folds a line."""


def address_of(option: str, text: str) -> str:
    """A mail address. Raises InputError, which names the option, if the text is none."""
    try:
        return mailbox(text)
    except ValueError as error:
        raise InputError(f"{option} {printable(text, 80)!r}: {error}") from None


def report_mail(report: Report, sender: str, recipients: Sequence[str], host: str, now: datetime) -> bytes:
    """The report as `own_mail` makes it."""
    subject = f"spamfilter report of {whose(report, host)}, {day_text(report.since)} to {day_text(report.until)}"
    text, page = report_text(report, WIDTH), report_html(report, host)
    return own_mail(sender, ", ".join(recipients), subject, now, text, page)


def own_mail(sender: str, to: str, subject: str, now: datetime, text: str, page: str) -> bytes:
    """A mail of ours as text and as HTML, in ASCII with CR LF line ends, which every server takes; to an address that
    is not ASCII, its header is in UTF-8."""
    mail = EmailMessage(policy=SMTP if to.isascii() else SMTPUTF8)
    mail["From"] = Address("spamfilter", addr_spec=sender)
    mail["To"] = to
    mail["Subject"] = subject
    mail["Date"] = format_datetime(now)
    mail["Message-ID"] = make_msgid(domain=sender.partition("@")[2])
    mail["Auto-Submitted"] = "auto-generated"  # RFC 3834: keeps vacation replies away
    mail.set_content(text, cte="quoted-printable")
    mail.add_alternative(page, subtype="html", cte="quoted-printable")
    return mail.as_bytes()


async def send(next_hop: NextHop, mail: bytes, sender: str, recipient: str, what: str = "the report") -> None:
    """Send a mail of ours, named `what` in errors. Raises TryAgain or Refused, with the reply that rejects it."""
    try:
        reply = await offer(next_hop, sender.encode(), recipient.encode(), mail)
    except NextHopError as error:
        raise TryAgain(f"{what} was not sent: {error}") from error
    finally:
        next_hop.close()
    if not reply.positive:
        kind = TryAgain if reply.code < 500 else Refused
        raise kind(f"{what} was not sent: {next_hop.where} says {printable(reply.text, 300)}")
