"""Tries the relay of a fleet through its front; scripts/fleet --check runs it.

  fleet_check.py FRONT NODE1 NODE2 NODE3 ADMIN1 ADMIN2 ADMIN3     (ports)
"""
import base64
import http.client
import os
import socket
import struct
import sys
import time

PORTS = [int(p) for p in sys.argv[1:]]
RELAY, NODES, ADMINS = PORTS[0], PORTS[1:4], PORTS[4:7]


class Refused(Exception):
    pass


class Socket:
    """A WebSocket that sends and receives short texts."""

    def __init__(self, port, server_id, role):
        self.s = socket.create_connection(("127.0.0.1", port), 10)
        self.s.sendall(("GET /ws?serverId=%s&role=%s HTTP/1.1\r\nHost: relay\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n"
                        % (server_id, role, base64.b64encode(os.urandom(16)).decode())).encode())
        self.r = self.s.makefile("rb")
        self.status = int(self.r.readline().split()[1])
        while self.r.readline() not in (b"\r\n", b""):
            pass
        if self.status != 101:
            self.s.close()
            raise Refused(self.status)

    def send(self, text):
        b = text.encode()
        assert len(b) < 126
        self.s.sendall(bytes([0x81, 0x80 | len(b), 0, 0, 0, 0]) + b)

    def receive(self):
        op, n = self.r.read(2)
        if n == 126:
            n, = struct.unpack(">H", self.r.read(2))
        return op & 15, self.r.read(n)

    def close(self):
        self.r.close()
        self.s.close()


def through_front(server_id, role, refusals=20):
    """As a peer does: a refused upgrade is tried again."""
    for _ in range(refusals):
        try:
            return Socket(RELAY, server_id, role)
        except Refused as e:
            last = e
            time.sleep(0.2)
    sys.exit("fleet: %s of %s is refused by the front, last with %s" % (role, server_id, last))


def message(a, b, text):
    a.send(text)
    got = b.receive()
    if got != (1, text.encode()):
        sys.exit("fleet: sent %r, received %r" % (text, got))


def reroutes():
    n = 0
    for port in NODES:
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        c.request("GET", "/metrics")
        for line in c.getresponse().read().decode().splitlines():
            if line.startswith("paseo_relay_reroute_responses_total "):
                n += float(line.split()[1])
        c.close()
    return n


def drain(i, method):
    c = http.client.HTTPConnection("127.0.0.1", ADMINS[i], timeout=10)
    c.request(method, "/drain", headers={"X-Sluice-Admin": "1"})
    assert c.getresponse().status == 200
    c.close()


# Sessions whose both ends come through the front.
for i in range(10):
    s, c = through_front("front-%d" % i, "server"), through_front("front-%d" % i, "client")
    message(c, s, "to the server")
    message(s, c, "to the client")
    s.close()
    c.close()

# Sessions that a node already has: the front finds it, wherever its hash leads.
before = reroutes()
for i in range(30):
    s = Socket(NODES[i % 3], "node-%d" % i, "server")
    c = through_front("node-%d" % i, "client")
    message(c, s, "found")
    s.close()
    c.close()
if reroutes() == before:
    sys.exit("fleet: thirty sessions and no reroute: the check checks nothing")

# A node that drains keeps its sessions, and new ones go elsewhere.
s = Socket(NODES[0], "kept", "server")
drain(0, "POST")
c = through_front("kept", "client")
message(c, s, "still here")
for i in range(10):
    through_front("new-%d" % i, "server").close()
drain(0, "DELETE")
