"""TLS on both sides: the ssl module's defaults, and never less, whatever the system's configuration of OpenSSL says.

Guarantee: TLS 1.2 or later, no compression, no renegotiation; a next hop needs a certificate that is valid for its
name. A key with a passphrase is an error: nobody is there to type it.
"""

import ssl


def server_context(certificate: str, key: str) -> ssl.SSLContext:
    """For clients that say STARTTLS. Raises OSError, of which SSLError is one, or ValueError."""
    context = _strengthened(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    context.load_cert_chain(certificate, key, password=_no_passphrase)
    return context


def renew(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Take the files anew, for the handshakes to come. Raises as `server_context`; then nothing has changed."""
    server_context(certificate, key)  # a pair that does not fit must not replace one that does
    context.load_cert_chain(certificate, key, password=_no_passphrase)


def client_context(ca: str = "") -> ssl.SSLContext:
    """For a next hop whose certificate this CA has signed; empty: one of the system's. Raises OSError."""
    return _strengthened(ssl.create_default_context(cafile=ca or None))


def _strengthened(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    return context


def _no_passphrase() -> str:
    raise ValueError("the key wants a passphrase, which nobody is there to type; store it without one, with mode 0600")
