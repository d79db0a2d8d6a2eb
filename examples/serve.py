"""Detections over HTTP: python3 serve.py weights.safetensors [port] [device]
curl --data-binary @photo.jpg localhost:8000/ or curl -F image=@photo.jpg localhost:8000/; GET /health and /metrics.
Requests that wait at the same time are computed as a batch. An example, without authentication or encryption."""
import collections, contextlib, io, json, queue, re, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import maskrcnn
BATCH, WAITING, CONNECTIONS, MAX_BYTES, SECONDS = 4, 256, 512, 32 << 20, 20
jobs, counts, lock = queue.Queue(WAITING), collections.Counter(), threading.Lock()


def count(which, **more):
    with lock: which.update(more)


def compute(model):
    """Takes what waits, at most a batch; a job is an image and a queue for what was found or the Error."""
    while True:
        batch = [jobs.get()] + [jobs.get() for _ in range(min(BATCH - 1, jobs.qsize()))]
        begin = time.monotonic()
        try:
            found = model([image for image, _ in batch], errors="return")
        except Exception as e:  # of the model, which may be dead: each client is told, and /health fails
            found = [e] * len(batch)
        count(counts, images_total=len(batch), batches_total=1, compute_seconds_total=time.monotonic() - begin)
        for (_, reply), f in zip(batch, found): reply.put(f)


def answer(found):
    if isinstance(found, maskrcnn.Classes):
        return {"classes": [{"name": n, "score": float(s)} for n, s in zip(found.names, found.scores)]}
    objects = [{**entry, "name": name} for entry, name in zip(found.to_coco(0), found.names)]
    return {"width": found.width, "height": found.height, "detections": objects}


def uploaded(body, content_type):
    """The body, or the first file of a form."""
    form = re.search(r'multipart/form-data.*boundary="?([^";]+)', content_type, re.I)
    for part in body.split(b"--" + form[1].encode())[1:] if form else []:
        head, _, data = part.partition(b"\r\n\r\n")
        if b"filename=" in head: return data[:-2]  # the line end belongs to the boundary
    return b"" if form else body


class Timed(io.RawIOBase):
    """A request, all of which has to arrive within SECONDS, however slowly it drips."""
    readable = lambda _: True
    def __init__(self, connection):
        self.connection, self.end = connection, time.monotonic() + SECONDS
    def readinto(self, to):
        self.connection.settimeout(max(self.end - time.monotonic(), 0.001))
        return self.connection.recv_into(to)


class Handler(BaseHTTPRequestHandler):
    log_message, protocol_version = lambda *_: None, "HTTP/1.1"  # no line per request; curl waits for 100 Continue
    do_HEAD = lambda self: self.do_GET()
    def setup(self):
        super().setup()
        self.rfile = io.BufferedReader(Timed(self.connection))
    def reply(self, status, what):
        count(counts, **{f"responses_{status}_total": 1})
        body = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(status)
        kind, length = "text/plain" if isinstance(what, str) else "application/json", str(len(body))
        for h in (("Content-Type", kind), ("Content-Length", length), ("Connection", "close")): self.send_header(*h)
        self.end_headers()
        self.connection.settimeout(SECONDS)
        self.command == "HEAD" or self.wfile.write(body)
    def finish(self):  # reads what the client still sends: it would be reset, and might not see the reply
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while self.rfile.read1(1 << 16): pass
    def do_GET(self):
        if self.path == "/metrics":
            return self.reply(200, "".join("maskrcnn_%s %s\n" % m for m in dict(counts, waiting=jobs.qsize()).items()))
        healthy = self.path == "/health" and not self.server.failed
        self.reply(200 if healthy else 503 if self.server.failed else 404, {"ok": healthy})
    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,9}", length) or int(length) > MAX_BYTES:
            return self.reply(413 if length.isdigit() else 411, {"error": f"send Content-Length, at most {MAX_BYTES}"})
        body, reply = self.rfile.read(int(length)), queue.Queue(1)
        try:
            jobs.put_nowait((uploaded(body, self.headers.get("Content-Type", "")), reply))
        except queue.Full:
            return self.reply(503, {"error": "too many requests are waiting; try again"})
        found = reply.get()
        if not isinstance(found, Exception):
            return self.reply(200, answer(found))
        self.server.failed |= not isinstance(found, (maskrcnn.ImageError, maskrcnn.OutOfMemory))
        self.reply(400 if isinstance(found, maskrcnn.ImageError) else 500, {"error": str(found)})


class Server(ThreadingHTTPServer):
    request_queue_size, daemon_threads, failed, of_client = CONNECTIONS, True, False, collections.Counter()
    handle_error = lambda *_: count(counts, dropped_total=1)  # a client that went away, or was too slow
    def process_request(self, request, address):
        if threading.active_count() > CONNECTIONS or self.of_client[address[0]] > CONNECTIONS // 2:
            return count(counts, refused_total=1) or self.shutdown_request(request)
        count(self.of_client, **{address[0]: 1})
        super().process_request(request, address)
    def process_request_thread(self, request, address):
        super().process_request_thread(request, address)
        count(self.of_client, **{address[0]: -1})


def main(weights, port="8000", device="auto"):
    try:
        model = maskrcnn.Model(weights, device, batch=BATCH)
        server = Server(("", int(port)), Handler)
    except (maskrcnn.Error, OSError, OverflowError, ValueError) as e:
        sys.exit(f"serve.py: {e}" if isinstance(e, maskrcnn.Error) else f"serve.py: port {port}: {e}")
    threading.Thread(target=compute, args=(model,), daemon=True).start()
    print(f"http://localhost:{server.server_port}/", flush=True)
    with contextlib.suppress(KeyboardInterrupt): server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:]) if 2 <= len(sys.argv) <= 4 else sys.exit(__doc__)
