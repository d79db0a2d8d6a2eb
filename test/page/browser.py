#!/usr/bin/env python3
"""Opens pages in a headless Chromium, for tests and for looking at a page:

  python3 test/page/browser.py --screenshot OUT.png [--width 390] [--dark] [--print] PAGE.html
  python3 test/page/browser.py --pdf OUT.pdf PAGE.html

The browser is spoken to through a pipe (the DevTools protocol, a JSON text and a NUL a message): no port, no package.
Exits with SKIPPED where there is no Chromium."""
import argparse
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# The sandbox needs rights that neither root nor a container has; pages are files of ours.
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
         "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--remote-debugging-pipe")
PATIENCE = 60  # seconds that one answer may take


class Broken(Exception):
    """The browser or a script in it did not do what was asked."""


def find_chromium():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """A running Chromium: `with Browser() as browser: page = browser.page()`."""

    def __init__(self):
        program = find_chromium()
        if not program:
            print("skipped: no chromium")
            sys.exit(SKIPPED)
        self.folder = tempfile.mkdtemp(prefix="browser-")
        # Away from 3 and 4, where the browser expects its own ends.
        ends = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for pair in (os.pipe(), os.pipe()) for fd in pair]
        (reads, self.to), (self.come, writes) = ends[:2], ends[2:]

        def place():
            os.dup2(reads, 3)
            os.dup2(writes, 4)

        self.log = open(os.path.join(self.folder, "stderr"), "w+b")
        self.process = subprocess.Popen([program, *FLAGS, "--user-data-dir=" + self.folder, "about:blank"],
                                        preexec_fn=place, pass_fds=(3, 4), start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        os.close(reads)
        os.close(writes)
        self.number, self.rest, self.pages = 0, b"", {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.to)
        os.close(self.come)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, until):
        """The next message; None: there was none before the time `until`."""
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.come], [], [], max(0, until - time.monotonic()))
            if not ready:
                return None
            part = os.read(self.come, 1 << 20)
            if not part:
                self.log.seek(0)
                raise Broken("the browser ended:\n" + self.log.read().decode(errors="replace")[-2000:])
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        until = time.monotonic() + PATIENCE
        while True:
            answer = self.receive(until)
            if answer is None:
                raise Broken(f"{method}: no answer in {PATIENCE} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Broken(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.note(answer)

    def note(self, event):
        page = self.pages.get(event.get("sessionId"))
        if page and "method" in event:
            page.note(event["method"], event["params"])

    def page(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.pages[session] = page = Page(self, session, target)
        page.begin()
        return page


class Page:
    """A tab. `faults` holds all that the pages opened in it complained about, `requests` the addresses they asked for."""

    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target
        self.faults, self.requests, self.loaded = [], [], False
        self.width, self.height = 1200, 800

    def begin(self):
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        # A violation of the page's policy, by whatever it was caused, becomes a message.
        self.call("Page.addScriptToEvaluateOnNewDocument", source="""
          addEventListener("securitypolicyviolation", e =>
            console.error("policy: " + e.violatedDirective + " " + e.blockedURI + " line " + e.lineNumber));""")
        self.viewport(self.width, self.height)

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def close(self):
        del self.browser.pages[self.session]
        self.browser.call("Target.closeTarget", targetId=self.target)

    def note(self, method, params):
        if method == "Runtime.consoleAPICalled":
            self.faults.append("console: " + " ".join(str(a.get("value", a.get("description")))
                                                      for a in params["args"]))
        elif method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.faults.append("exception: " + details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded":
            self.faults.append("log: " + params["entry"]["text"] + " " + params["entry"].get("url", ""))
        elif method == "Page.javascriptDialogOpening":
            self.faults.append("dialog: " + params["message"])
            self.call("Page.handleJavaScriptDialog", accept=False)
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, path, ready=None):
        """Opens a file; waits for its images and, where it is given, for the expression `ready`. Returns the seconds."""
        self.loaded = False
        begin = time.monotonic()
        answer = self.call("Page.navigate", url=pathlib.Path(path).resolve().as_uri())
        if "errorText" in answer:
            raise Broken(f"{path}: {answer['errorText']}")
        while not self.loaded:
            event = self.browser.receive(begin + PATIENCE)
            if event is None:
                raise Broken(f"{path}: not loaded in {PATIENCE} s")
            self.browser.note(event)
        if ready:
            self.wait(ready)
        return time.monotonic() - begin

    def images(self):
        """Has all images loaded, those below the window, too; how many there are."""
        return self.js("""Promise.all([...document.images].map(i => {
          i.loading = "eager"; return i.decode().catch(() => 0) })).then(all => all.length)""")

    def wait(self, condition):
        until = time.monotonic() + PATIENCE
        while not self.js(f"!!({condition})"):
            if time.monotonic() > until or any(f.startswith("exception") for f in self.faults):
                raise Broken(f"not so: {condition}; {self.faults}")
            time.sleep(0.02)

    def js(self, expression):
        """The value of an expression of JavaScript, a promise's when it is there."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise Broken(f"{expression}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def viewport(self, width, height=None):
        self.width, self.height = width, height or self.height
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=self.height, deviceScaleFactor=1,
                  mobile=False)

    def media(self, dark=False, paper=False):
        """How the window looks; pdf() prints for paper in any case."""
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "",
                  features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def middle(self, selector):
        """Where the middle of an element is in the window, after it has been scrolled there."""
        at = self.js(f"""(async e => {{ if (!e) return null; e.scrollIntoView({{block: "center"}});
          for (let i = 0; i < 3; i++) await new Promise(requestAnimationFrame); // what moves it has been drawn
          const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2] }})(
          document.querySelector({json.dumps(selector)}))""")
        if not at:
            raise Broken(f"no {selector}")
        return at

    def mouse(self, event, x, y, pressed=False):
        button = "none" if event == "mouseMoved" and not pressed else "left"
        self.call("Input.dispatchMouseEvent", type=event, x=x, y=y, button=button, buttons=int(pressed),
                  clickCount=int(event != "mouseMoved"))

    def hover(self, selector, dx=0, dy=0):
        x, y = self.middle(selector)
        self.mouse("mouseMoved", x + dx, y + dy)

    def click(self, selector):
        x, y = self.middle(selector)
        self.mouse("mousePressed", x, y, pressed=True)
        self.mouse("mouseReleased", x, y)

    def drag(self, selector, begin, end):
        """Presses at the offset `begin` from the middle of an element and lets go at `end`."""
        x, y = self.middle(selector)
        self.mouse("mouseMoved", x + begin[0], y + begin[1])
        self.mouse("mousePressed", x + begin[0], y + begin[1], pressed=True)
        for part in (0.3, 0.7, 1):
            self.mouse("mouseMoved", *(o + b + part * (e - b) for o, b, e in zip((x, y), begin, end)), pressed=True)
        self.mouse("mouseReleased", x + end[0], y + end[1])

    def screenshot(self, path, top=0, bottom=None):
        """A picture of the page, or of its rows of pixels from `top` up to `bottom`."""
        self.images()
        bottom = min(bottom or 1e9, self.js("Math.ceil(document.documentElement.scrollHeight)"), top + 16000)
        clip = {"x": 0, "y": top, "width": self.width, "height": bottom - top, "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def pdf(self, path):
        """As it is printed on A4, backgrounds as the page asks for them."""
        self.images()
        data = self.call("Page.printToPDF", paperWidth=8.27, paperHeight=11.69, printBackground=False)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))


def main():
    parser = argparse.ArgumentParser(description="Draws a page by a headless Chromium.")
    parser.add_argument("page")
    parser.add_argument("--screenshot", metavar="OUT.png", help="picture of the whole page")
    parser.add_argument("--pdf", metavar="OUT.pdf", help="the page as it is printed")
    parser.add_argument("--width", type=int, default=1200, help="of the window, in pixels (default: 1200)")
    parser.add_argument("--rows", type=int, nargs=2, default=(0, None), metavar=("FROM", "TO"),
                        help="of the screenshot, in pixels (default: all)")
    parser.add_argument("--dark", action="store_true", help="for a reader who prefers dark pages")
    parser.add_argument("--print", action="store_true", help="a screenshot of what is printed")
    parser.add_argument("--js", action="append", default=[], metavar="EXPRESSION", help="print the value of this first")
    args = parser.parse_args()
    with Browser() as browser:
        page = browser.page()
        page.viewport(args.width)
        page.media(dark=args.dark, paper=args.print)
        seconds = page.open(args.page)
        for expression in args.js:
            print(json.dumps(page.js(expression)))
        if args.screenshot:
            page.screenshot(args.screenshot, *args.rows)
        if args.pdf:
            page.pdf(args.pdf)
        for fault in page.faults:
            print(fault, file=sys.stderr)
        print(f"{args.page}: {os.path.getsize(args.page)} bytes, loaded in {seconds:.2f} s")


if __name__ == "__main__":
    main()
