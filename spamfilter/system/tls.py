"""TLS with clients and with the next hop, whatever the system's OpenSSL is configured to.

Guarantee: TLS 1.2 or later, no compression, no renegotiation; a next hop needs a certificate that is valid for its
name. A key with a passphrase is an error, as nobody could type it at the start of a service.
"""

import ssl

CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
"""Of TLS 1.2: Python's own choice. Distributions build Python with OpenSSL's, some of which still have SHA-1."""

_NOT_A_PAIR = ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH", "NO_CERTIFICATE_ASSIGNED")
"""What OpenSSL says of a key and a certificate that do not belong together."""


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """For clients that send STARTTLS. Raises OSError, of which SSLError is one, or ValueError."""
    context = _strengthened(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    try:
        context.load_cert_chain(certificate, key, password=_no_passphrase)
    except ssl.SSLError as error:
        if error.reason in _NOT_A_PAIR:
            raise ValueError("the key is not that of the certificate") from error
        raise
    return context


def client_context(ca: str) -> ssl.SSLContext:
    """For a next hop whose certificate is signed by a CA in this file, or in the system's if empty. Raises OSError."""
    return _strengthened(ssl.create_default_context(cafile=ca or None))


def _strengthened(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def _no_passphrase() -> str:
    raise ValueError("the key wants a passphrase, which nobody is there to type; store it without one, with mode 0600")
