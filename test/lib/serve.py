"""Asks examples/serve.py, as many and as bad clients do at the same time: serve.py WEIGHTS PICTURE.png. Prints what is
wrong."""
import atexit
import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time

weights, picture = sys.argv[1:]
CLIENTS, EACH, SECONDS = 50, 10, 4
data = open(picture, "rb").read()
START = f"""import sys
sys.path.insert(0, "examples")
import serve
serve.SECONDS = {SECONDS}
serve.main(sys.argv[1], "0", "cpu")"""
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
server = subprocess.Popen([sys.executable, "-c", START, weights], stdout=subprocess.PIPE, text=True)
atexit.register(server.kill)
port = int(re.search(r":(\d+)/", server.stdout.readline())[1])
wrong, answers, lock = [], [], threading.Lock()
POST = b"POST / HTTP/1.1\r\n"
FORM_HEADER = {"Content-Type": "multipart/form-data; boundary=x"}
FORM = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n' + data + b"\r\n--x--\r\n"


def check(holds, what):
    if not holds:
        with lock:
            wrong.append(what)


def ask(body, headers=None, method="POST", path="/"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=100)
    connection.request(method, path, body, headers or {})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, text


def client(i):
    for k in range(EACH):
        form = (i + k) % 2
        try:
            status, text = ask(FORM, FORM_HEADER) if form else ask(data)
            with lock:
                answers.append((status, text))
        except OSError as e:
            check(False, f"client {i}: {e!r}")


def hostile(i):
    """One byte a second; nothing; a body that ends early; no HTTP; bad images."""
    try:
        if i % 5 == 4:
            bad = data[:len(data) // 2] if i % 2 else b"no image"
            status, text = ask(bad)
            check(status == 400 and json.loads(text)["error"], f"a bad image: {status} {text[:100]}")
            return
        with socket.create_connection(("127.0.0.1", port), timeout=100) as s:
            begin = time.monotonic()
            s.sendall((POST, b"", POST + b"Content-Length: 100000\r\n\r\nabc", b"\0\xff" * 9)[i % 5])
            if i % 5 == 0:
                for byte in b"X-Slow: " + b"a" * 3 * SECONDS:
                    time.sleep(1)
                    s.sendall(bytes([byte]))
            if i % 5 == 3:
                s.shutdown(socket.SHUT_WR)
            while s.recv(1000):
                pass
            check(time.monotonic() - begin < 3 * SECONDS + 5, f"hostile client {i} is kept for long")
    except OSError:
        pass  # it was thrown out


def as_curl():
    """curl sends a body above 1 MB after 100 Continue, or a second later."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as s:
        s.sendall(POST + b"Host: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(data))
        said = s.recv(1000)
        check(said.startswith(b"HTTP/1.1 100 "), f"Expect: {said!r}")
        s.sendall(data)
        said = b"".join(iter(lambda: s.recv(1000), b""))
        check(said.startswith(b"HTTP/1.1 200 ") and b"Connection: close" in said, f"after Expect: {said[:100]!r}")


def start(*arguments, says):
    end = subprocess.run([sys.executable, "examples/serve.py", *arguments], capture_output=True, text=True)
    check(end.returncode == 1 and says in end.stderr and "Traceback" not in end.stderr, f"{arguments}: {end.stderr}")


def start_wrongly():
    start(weights, "high", "cpu", says="port high: ")
    start(weights, str(port), "cpu", says=f"port {port}: ")
    start("/nowhere.pth", says="/nowhere.pth")
    start(says="python3 serve.py weights")


as_curl()
check(ask(FORM, {"Content-Type": "Multipart/Form-Data; boundary=x"})[0] == 200, "a form in other letters")
check(ask(None, {"Transfer-Encoding": "chunked"})[0] == 411, "a body of unknown length")
threads = [threading.Thread(target=hostile, args=(i,)) for i in range(25)]
threads += [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
threads += [threading.Thread(target=start_wrongly)]
for t in threads:
    t.start()
for t in threads:
    t.join()
check(len(answers) == CLIENTS * EACH, f"{len(answers)} of {CLIENTS * EACH} requests were answered")
check({s for s, _ in answers} == {200}, f"statuses {sorted({s for s, _ in answers})}")
check(len({t for _, t in answers}) == 1 and json.loads(answers[0][1])["detections"], "answers differ or are empty")
check(ask(None, {"Content-Length": "99999999999"})[0] == 413, "a huge body that does not come")
check(ask(bytes(33 << 20))[0] == 413, "a huge body")
check(ask(bytes(8 << 20), method="PUT")[0] == 501, "a method that there is not")
check(ask(b"", FORM_HEADER)[0] == 400, "an empty form")
check(ask(None, method="GET", path="/nothing")[0] == 404, "an unknown path")
check(ask(None, method="GET", path="/health")[0] == 200, "health")
check(ask(None, method="HEAD", path="/health") == (200, b""), "health, headers alone")
metrics = dict(line.rsplit(" ", 1) for line in ask(None, method="GET", path="/metrics")[1].decode().splitlines())
images, batches = int(metrics["maskrcnn_images_total"]), int(metrics["maskrcnn_batches_total"])
check(images >= CLIENTS * EACH and batches < images / 2, f"{images} images in {batches} batches")
check(server.poll() is None, "the server has ended")
server.send_signal(signal.SIGINT)
check(server.wait(60) == 0, "Ctrl-C")
print("\n".join(wrong))
sys.exit(bool(wrong))
