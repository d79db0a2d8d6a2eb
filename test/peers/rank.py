"""A rank 1 of 2 that was written after comm/session.h and comm/watch_news.h alone: python3 rank.py PORT BUILD, and
MASKRCNN_JOB. Joins the run at 127.0.0.1:PORT, prints the ranks, then fails with status 2 at step 12 and prints the
status with which rank 0 ends the run. Exits with 1 if it is refused."""
import hashlib
import hmac
import os
import socket
import struct
import sys

HELLO, CHALLENGE, PROOF, REFUSED, SEATED, PEER, WELCOME, BEAT, STOP, FAILED, END, BYE = range(1, 13)


def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


class Connection:
    def __init__(self, port, kind, build, key):
        self.socket = socket.create_connection(("127.0.0.1", port), 20)
        self.keys, self.counters = None, [0, 0]
        text = "\n".join([os.urandom(32).hex(), "2", "1", "python", build])
        hello = self.send(HELLO, kind, 1, text)
        kind, _, _, text, challenge = self.receive()
        assert kind == CHALLENGE and len(text) == 64
        self.session = mac(key, hello + challenge)
        self.keys = [mac(self.session, b"to rank 0"), mac(self.session, b"from rank 0")]
        self.send(PROOF, 0, 0, "")
        frame = self.receive()
        if frame is None or frame[0] != SEATED:
            print("refused")
            sys.exit(1)

    def tag(self, direction, frame):
        counter = struct.pack("<Q", self.counters[direction])
        self.counters[direction] += 1
        return mac(self.keys[direction], counter + frame)[:16]

    def send(self, kind, code, number, text):
        frame = struct.pack("<4sHHiIq", b"MRCN", 2, kind, code, len(text), number) + text.encode()
        self.socket.sendall(frame + (self.tag(0, frame) if self.keys else b""))
        return frame

    def bytes(self, count):
        got = b""
        while len(got) < count:
            part = self.socket.recv(count - len(got))
            if not part:
                return None
            got += part
        return got

    def receive(self):
        """Type, code, number, text, and the frame; None: it has no tag that is right, or none came."""
        head = self.bytes(24)
        if head is None:
            return None
        magic, version, kind, code, size, number = struct.unpack("<4sHHiIq", head)
        assert magic == b"MRCN" and version == 2
        text = self.bytes(size)
        frame = head + text
        if self.keys and self.bytes(16) != self.tag(1, frame):
            return None
        return kind, code, number, text.decode(), frame


def main():
    port, build = int(sys.argv[1]), sys.argv[2]
    control = Connection(port, 0, build, hashlib.sha256(os.environ["MASKRCNN_JOB"].encode()).digest())
    data = Connection(port, 1, build, control.session)
    for rank in range(2):
        kind, _, number, text, _ = control.receive()
        assert kind == PEER and number == rank
        print(rank, text)
    assert control.receive()[0] == WELCOME
    print("welcome")
    control.send(BEAT, 0, 11, "")
    control.send(FAILED, 2, 12, "Python says so")
    frame = control.receive()
    while frame[0] == BEAT:
        frame = control.receive()
    assert frame[0] == END
    print("end", frame[1])
    data.socket.close()


main()
