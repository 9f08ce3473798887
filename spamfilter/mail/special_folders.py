"""Folders of a mailbox that hold no ordinary incoming mail, known by their names, or by Dovecot's configuration.

Guarantee: names are compared without regard to case, accents, hyphens and underscores, in a Maildir of Dovecot or
Courier (`.Junk`, `.INBOX.Junk`, `.[Gmail].Spam`), with folders as directories (`Junk`), and as mbox files (`Junk`,
`Junk.mbox`).
"""

import binascii
import re
import unicodedata
from collections.abc import Mapping

SPECIAL = {
    "spam or junk": (
        "spam", "junk", "junk e-mail", "junk email", "junk mail", "bulk", "bulk mail", "spambox", "spam mail",
        "spamverdacht", "spam verdacht", "unerwünscht", "unerwünschte werbung", "werbung", "courrier indésirable",
        "indésirable", "indésirables", "pourriel", "pourriels", "correo no deseado", "correo electrónico no deseado",
        "posta indesiderata", "ongewenste e-mail", "lixo eletrônico", "lixo eletrónico", "skräppost", "søppelpost",
        "uønsket e-post", "roskaposti", "wiadomości-śmieci", "нежелательная почта", "спам",
    ),
    "deleted mail": (
        "trash", "deleted", "deleted items", "deleted messages", "bin", "papierkorb", "mülleimer", "gelöscht",
        "gelöschte elemente", "gelöschte objekte", "gelöschte nachrichten", "corbeille", "éléments supprimés",
        "papelera", "elementos eliminados", "cestino", "posta eliminata", "prullenbak", "verwijderd",
        "verwijderde items", "lixeira", "itens excluídos", "papperskorgen", "slettet", "roskakori", "kosz", "корзина",
        "удаленные",
    ),
    "sent mail": (
        "sent", "sent items", "sent messages", "sent mail", "outbox", "gesendet", "gesendete elemente",
        "gesendete objekte", "gesendete nachrichten", "postausgang", "envoyés", "éléments envoyés", "messages envoyés",
        "enviados", "elementos enviados", "inviata", "posta inviata", "itens enviados", "verzonden", "verzonden items",
        "skickat", "sendt", "lähetetyt", "wysłane", "отправленные",
    ),
    "drafts": (
        "drafts", "draft", "entwürfe", "brouillons", "borradores", "bozze", "concepten", "rascunhos", "utkast",
        "luonnokset", "kopie robocze", "wersje robocze", "черновики",
    ),
}  # fmt: skip
"""What a folder holds -> its names, as mail programs and servers give them in several languages."""


def _plain(name: str) -> str:
    """A name in small letters without accents, hyphens and underscores; macOS writes accents apart from letters."""
    apart = unicodedata.normalize("NFKD", name.casefold())
    return "".join(one for one in apart if not unicodedata.combining(one)).replace("_", " ").replace("-", " ")


_KINDS = {_plain(name): kind for kind, names in SPECIAL.items() for name in names}
_USES = dict(zip((r"\Junk", r"\Trash", r"\Sent", r"\Drafts"), SPECIAL, strict=True))
_MAILBOX = re.compile(r"^ *mailbox (?:\"(.+)\"|(\S+)) \{\n((?: .*\n)*?) *\}", re.MULTILINE)
_USE = re.compile(r"^ *special_use = (.*)$", re.MULTILINE)


def special_uses(configuration: str) -> dict[str, str]:
    """The folders to which a configuration of Dovecot, as doveconf prints it, gives a special use (RFC 6154).

    As `kind_of` takes them: name -> what it holds.

    >>> special_uses('  mailbox "My Fraud" {\\n    special_use = \\\\Junk\\n  }\\n')
    {'my fraud': 'spam or junk'}
    >>> special_uses('  mailbox Fraud {\\n    special_use = "\\\\\\\\Junk"\\n  }\\n')
    {'fraud': 'spam or junk'}
    """
    found = {}
    for quoted, bare, inside in _MAILBOX.findall(configuration):
        said = " ".join(_USE.findall(inside)).replace('"', "").replace(r"\\", "\\")  # Dovecot 2.4 writes "\\Junk"
        uses = [_USES[use] for use in said.split() if use in _USES]
        if uses:
            found[_plain((quoted or bare).rpartition("/")[2])] = uses[0]
    return found


def kind_of(name: str, uses: Mapping[str, str] = {}) -> str | None:
    """What a folder or mbox file of this name holds, a key of SPECIAL; None for an ordinary one. uses: special uses.

    >>> kind_of(".INBOX.Junk"), kind_of(".Junk.2024"), kind_of("Gel&APY-scht/2024"), kind_of("Archive")
    ('spam or junk', 'spam or junk', 'deleted mail', None)
    """
    parts = _plain(_decoded(name)).removesuffix(".mbox").replace("/", ".").split(".")
    return next((kind for part in parts if (kind := uses.get(part) or _KINDS.get(part))), None)


def _decoded(name: str) -> str:
    """A name from the modified UTF-7 of IMAP (RFC 3501 section 5.1.3); as it stands if it is not in it."""
    first, *rest = name.split("&")
    text = first
    for piece in rest:
        coded, dash, plain = piece.partition("-")
        if not dash:
            return name
        try:
            padded = coded.replace(",", "/") + "=" * (-len(coded) % 4)
            text += (binascii.a2b_base64(padded, strict_mode=True).decode("utf-16-be") if coded else "&") + plain
        except ValueError:
            return name
    return text
