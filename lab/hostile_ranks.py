#!/usr/bin/env python3
"""Attacks the start of a run of two ranks: python3 lab/hostile_ranks.py BUILD >results/hostile-ranks-cpu.txt

BUILD is the folder of the programs. Strangers connect to rank 0 before rank 1 does: connections that say nothing or
nonsense, hellos that lie in each field, with the run's secret and without it, and frames after the welcome. A stranger
without the secret must not keep the ranks from training; one that knows it may end the run, with one line. Exits with 1
if a rank dies of a signal, hangs, prints what is no UTF-8, or a stranger without the secret does any harm."""
import hashlib
import hmac
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HELLO, CHALLENGE, PROOF, REFUSED, SEATED, PEER, WELCOME, BEAT, STOP, FAILED, END, BYE = range(1, 13)
SECRET, WAIT, SECONDS = "the secret of this run", "10", 60


def mac(key, message):
    return hmac.new(key, message, hashlib.sha256).digest()


def frame(kind, code=0, number=0, text=b"", version=2, magic=b"MRCN", size=None):
    return struct.pack("<4sHHiIq", magic, version, kind, code, len(text) if size is None else size, number) + text


def connect(port):
    end = time.time() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 10)
        except ConnectionRefusedError:
            if time.time() > end:
                raise
            time.sleep(0.02)


def receive(s, tag=0):
    """The header and text of a frame, or None at the end."""
    got = b""
    try:
        while len(got) < 24 or len(got) < 24 + struct.unpack("<I", got[12:16])[0] + tag:
            part = s.recv(1 if len(got) < 24 else 24 + struct.unpack("<I", got[12:16])[0] + tag - len(got))
            if not part:
                return None
            got += part
    except OSError:
        return None
    return got[:len(got) - tag] if tag else got


class Peer:
    """A connection up to its seat, as comm/session.h describes it."""

    def __init__(self, port, build, key, kind=0, rank=1, world="2", local="1", host="stranger", nonce=None, **header):
        self.socket, self.count = connect(port), 0
        text = "\n".join([nonce or os.urandom(32).hex(), world, local, host, build]).encode("utf-8", "surrogateescape")
        hello = frame(HELLO, kind, rank, text, **header)
        self.socket.sendall(hello)
        challenge = receive(self.socket)
        self.seated = False
        if challenge and struct.unpack("<H", challenge[6:8])[0] == CHALLENGE:
            self.session = mac(key, hello + challenge)
            self.key = mac(self.session, b"to rank 0")
            self.send(frame(PROOF))
            answer = receive(self.socket, 16)  # None: refused, without a tag
            self.seated = answer is not None and struct.unpack("<H", answer[6:8])[0] == SEATED

    def send(self, f):
        self.socket.sendall(f + mac(self.key, struct.pack("<Q", self.count) + f)[:16])
        self.count += 1


class Runs:
    def __init__(self, build, folder):
        self.build, self.folder, self.failed = build, folder, False
        text = pathlib.Path(build, "commit.c").read_text()
        self.commit = re.search(r'"(.*?)"', text.split("build_commit", 1)[1]).group(1)
        subprocess.run([f"{build}/shapes", "--out", f"{folder}/set", "--train", "8", "--val", "2", "--size", "64"],
                       check=True, capture_output=True)

    def start(self, rank, port, secret):
        env = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2",
                   MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
        env.pop("MASKRCNN_JOB", None)
        if secret:
            env["MASKRCNN_JOB"] = SECRET
        return subprocess.Popen(
            [f"{self.build}/train", "--data", f"{self.folder}/set", "--model", "tiny", "--size", "64", "--batch", "2",
             "--device", "cpu", "--iters", "2", "--eval-every", "never", "--out", f"{self.folder}/run",
             "--timeout", "5", "--rendezvous-timeout", WAIT], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def case(self, name, attack, secret=True, knows=False, joins=True):
        """joins: rank 1 comes, too."""
        shutil.rmtree(f"{self.folder}/run", ignore_errors=True)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        begun = time.time()
        ranks = [self.start(0, port, secret)]
        held = [connect(port)]
        key = hashlib.sha256(SECRET.encode() if knows else b"").digest()  # which is the run's where it has no secret
        try:
            held.append(attack(port, self.commit, key))
        except OSError as e:
            held.append(e)
        if joins:
            ranks.append(self.start(1, port, secret))
        codes, said = [], []
        for r in ranks:
            try:
                out = r.communicate(timeout=SECONDS)[0]
                codes.append(r.returncode)
            except subprocess.TimeoutExpired:
                r.kill()
                out = r.communicate()[0]
                codes.append("hangs")
            try:
                said.append(out.decode())
            except UnicodeDecodeError:
                said.append("NO UTF-8")
        bad = any(c not in (0, 1, 2) for c in codes) or "NO UTF-8" in said or (not knows and any(codes))
        self.failed |= bad
        errors = [line for text in said for line in text.splitlines() if line.startswith("train: ") and
                  "may join this run" not in line]
        print(f"{name:44}  {' '.join(map(str, codes)):6}  {time.time() - begun:5.1f}  {'FAILED ' * bad}"
              f"{(errors or [''])[0][:110]}".rstrip(), flush=True)


def burst(n, held, text=b""):
    def attack(port, build, key):
        def run():
            ring = []
            for _ in range(n):
                try:
                    ring.append(socket.create_connection(("127.0.0.1", port), 1))
                    if text:
                        ring[-1].sendall(text)
                except OSError:
                    pass
                if len(ring) > held:
                    ring.pop(0).close()
            for s in ring:
                s.close()
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread
    return attack


def stays(n):
    return lambda port, build, key: [connect(port) for _ in range(n)]


def lies(**what):
    return lambda port, build, key: Peer(port, what.pop("build", build), key, **what)


def raw(data):
    def attack(port, build, key):
        s = connect(port)
        s.sendall(data)
        return s
    return attack


def opened(port, build, kind=0):
    """A connection that has said a hello, and the challenge."""
    s = connect(port)
    s.sendall(frame(HELLO, kind, 1, "\n".join([os.urandom(32).hex(), "2", "1", "stranger", build]).encode()))
    return s, receive(s) or b""


def reflects(port, build, key):
    """What rank 0 says goes back to it, on the same connection and on another."""
    pairs = [(opened(port, build), opened(port, build, 1)) for _ in range(20)]
    for (a, of_a), (b, of_b) in pairs:
        for s, f in ((a, of_a), (b, of_a), (a, frame(PROOF) + of_b[-16:])):
            try:
                s.sendall(f)
            except OSError:
                pass
    time.sleep(1)
    return pairs


def drips(n):
    def attack(port, build, key):
        text = frame(HELLO, 0, 1, "\n".join(["0" * 64, "2", "1", "stranger", build]).encode())
        all_of = [connect(port) for _ in range(n)]
        for byte in text[:10]:
            for s in all_of:
                try:
                    s.sendall(bytes([byte]))
                except OSError:
                    pass
            time.sleep(0.1)
        return all_of
    return attack


def resets(n):
    def attack(port, build, key):
        for _ in range(n):
            s = connect(port)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
    return attack


def floods(megabytes):
    def attack(port, build, key):
        s = opened(port, build)[0]
        for _ in range(megabytes):
            s.sendall(bytes(1000000))
        return s
    return attack


def after(*frames):
    """Frames of a rank that has been seated and has its data connection."""
    def attack(port, build, key):
        p = Peer(port, build, key)
        data = Peer(port, build, p.session, 1)
        while (f := receive(p.socket, 16)) and struct.unpack("<H", f[6:8])[0] != WELCOME:
            pass
        for f in frames:
            p.send(f)
        time.sleep(1)
        return p, data
    return attack


HELLOS = {
    "rank 0": {"rank": 0}, "rank 2 of 2": {"rank": 2}, "rank -1": {"rank": -1}, "rank 2^62": {"rank": 1 << 62},
    "world 3": {"world": "3"}, "world -1": {"world": "-1"}, "world 10^30": {"world": "9" * 30},
    "world x": {"world": "x"},
    "local rank 0": {"local": "0"}, "local rank 10^30": {"local": "9" * 30}, "local rank empty": {"local": ""},
    "host of control characters": {"host": "\x1b[2J\x07\r"}, "host that is no UTF-8": {"host": "\udcff\udcfe"},
    "host of 400 bytes": {"host": "h" * 400}, "build": {"build": "another"}, "build of 2 lines": {"build": "a\nb"},
    "nonce of 63 digits": {"nonce": "0" * 63}, "nonce of zeros": {"nonce": "0" * 64},
    "nonce, no digits": {"nonce": "z" * 64},
    "code 2": {"kind": 2}, "code -1": {"kind": -1}, "a data connection, not seated": {"kind": 1},
    "version 1": {"version": 1}, "version 65535": {"version": 65535}, "magic": {"magic": b"HTTP"},
}
SEATED_LIES = ("local rank 0", "host of control characters", "host that is no UTF-8", "nonce of zeros")
AFTER = {
    "beat of step 2^63 - 1": [frame(BEAT, 0, (1 << 63) - 1)], "beat of step -1": [frame(BEAT, 0, -1)],
    "failed with code 137": [frame(FAILED, 137, 1, b"x")], "failed, code 0": [frame(FAILED, 0, 1, b"x")],
    "failed, text of control characters": [frame(FAILED, 1, 1, b"\x1b]0;x\x07\n")],
    "failed, no UTF-8": [frame(FAILED, 1, 1, b"\xff\xfe" * 100)], 
    "failed, 8,191 bytes": [frame(FAILED, 1, 1, b"x" * 8191)],
    "failed, 8,192 bytes": [frame(FAILED, 1, 1, b"x" * 8192)],
    "length of 4 GB": [frame(FAILED, 1, 1, size=(1 << 32) - 1)],
    "end, of rank 0 only": [frame(END, 3, 1)], "bye": [frame(BYE)], "stop": [frame(STOP)], "type 0": [frame(0)],
    "type 65535": [frame(65535)], "hello again": [frame(HELLO, 0, 1, b"x")], "welcome": [frame(WELCOME)],
    "peer": [frame(PEER, 0, 0, b"x")],
}


def main():
    build = os.path.abspath(sys.argv[1])
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True,
                            cwd=pathlib.Path(__file__).parent, check=True).stdout.strip()
    print(f"Attacks on two ranks that start, {time.strftime('%Y-%m-%d')}, commit {commit}: python3\n"
          "lab/hostile_ranks.py BUILD. Without a secret, whose hello lies about itself alone takes rank 1's seat.\n")
    print(f"{'attack':44}  {'exit':6}  {'s':>5}  what the first rank with an error says")
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(build, folder)
        for secret in (True, False):
            how = "" if secret else ", no secret"
            for i in range(4):
                runs.case(f"4,000 mute connections, {i + 1}{how}", burst(4000, 300), secret)
            runs.case(f"4,000 babbling connections{how}", burst(4000, 300, os.urandom(400)), secret)
            runs.case(f"500 mute connections that stay{how}", stays(500), secret)
            runs.case(f"challenges sent back{how}", reflects, secret)
            runs.case(f"200 hellos, byte by byte{how}", drips(200), secret)
            runs.case(f"5,000 resets{how}", resets(5000), secret)
            runs.case(f"300 MB behind a hello{how}", floods(300), secret)
        for length in (0, 1 << 31, (1 << 32) - 1):
            runs.case(f"a header with length {length}", raw(frame(HELLO, 0, 1, size=length)))
        for name, what in HELLOS.items():
            runs.case(f"stranger: {name}", lies(**what))
        for name, what in HELLOS.items():
            runs.case(f"no secret: {name}", lies(**what), secret=False, knows=name in SEATED_LIES)
        for name, what in HELLOS.items():
            runs.case(f"knows the secret: {name}", lies(**what), knows=True)
        for name, frames in AFTER.items():
            runs.case(f"seated: {name}", after(*frames), knows=True, joins=False)
    sys.exit(runs.failed)


main()
