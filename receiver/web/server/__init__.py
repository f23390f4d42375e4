"""A WSGI server for hostile and slow peers, to be run inside another program."""

from receiver.web.server.head import Gate, PeerCertificate, RequestHead
from receiver.web.server.host import ServerOptions
from receiver.web.server.listen import bind_to, url_host
from receiver.web.server.server import Server, raise_descriptor_limit
from receiver.web.server.tls_contexts import ServerTls, TlsFiles

__all__ = [
    "Gate",
    "PeerCertificate",
    "RequestHead",
    "Server",
    "ServerOptions",
    "ServerTls",
    "TlsFiles",
    "bind_to",
    "raise_descriptor_limit",
    "url_host",
]
