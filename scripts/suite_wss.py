#!/usr/bin/env python3
"""Runs the relay's contract suite over wss: its cases as they are, with a client that speaks TLS.

    suite_wss.py SUITES_DIR/paseo CERT KEY [arguments of its run.py]

Every process that the suite starts gets the certificate for its relay listener, and every connection
to such a listener a TLS session. The admin listener stays plain.
"""
import os
import runpy
import socket
import ssl
import sys
import threading

suite, cert, key = sys.argv[1:4]
sys.path.insert(0, suite)
import core  # noqa: E402
import wsraw  # noqa: E402

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.load_verify_locations(cert)
context.set_alpn_protocols(["http/1.1"])
secure = set()  # ports of relay listeners


class Session:
    """A connected socket under TLS, with the errors of a plain one that does not block."""

    def __init__(self, plain):
        self.tls = context.wrap_socket(plain, server_hostname="localhost")
        self.lock = threading.Lock()  # a case may read and write at once, an SSL object may not

    def _do(self, step, *args):
        with self.lock:
            try:
                return step(*args)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise BlockingIOError from None
            except ssl.SSLEOFError:
                raise ConnectionResetError("a stream that ends without close_notify") from None
            except ssl.SSLError as e:
                raise ConnectionResetError(str(e)) from None

    def recv(self, n):
        return self._do(self.tls.recv, n)

    def send(self, data):
        return self._do(self.tls.send, data)

    def shutdown(self, how):
        """Ends the connection below TLS, which knows no half close."""
        with socket.socket(fileno=os.dup(self.tls.fileno())) as below:
            below.shutdown(how)

    def __getattr__(self, name):
        return getattr(self.tls, name)


plain_tcp = wsraw.tcp


def tcp(host, port, rcvbuf=None, sndbuf=None, timeout=5.0):
    s = plain_tcp(host, port, rcvbuf, sndbuf, timeout)
    if port not in secure:
        return s
    s.settimeout(timeout * wsraw.SCALE)
    try:
        s = Session(s)
    except OSError:  # among them what TLS complains of
        s.close()
        raise
    s.setblocking(False)
    return s


plain_init = core.Proc.__init__


def init(self, binary, args, env, *more):
    env = dict(env)
    env.setdefault("PASEO_RELAY_TLS_CERT_FILE", cert)
    env.setdefault("PASEO_RELAY_TLS_KEY_FILE", key)
    plain_init(self, binary, args, env, *more)
    secure.add(self.port)


core.Proc.__init__ = init
for module in list(sys.modules.values()):
    if getattr(module, "tcp", None) is plain_tcp:
        module.tcp = tcp
import allcases  # noqa: E402,F401

for module in list(sys.modules.values()):
    if getattr(module, "tcp", None) is plain_tcp:
        module.tcp = tcp
sys.argv = [os.path.join(suite, "run.py")] + sys.argv[4:]
runpy.run_path(sys.argv[0], run_name="__main__")
