"""Runs a command under a watcher process: when the command ends, its time is over, or the study ends for any reason,
the watcher ends all processes that the command has started."""
import contextlib
import ctypes
import json
import os
import select
import signal
import time

from records import Refused

PATIENCE = 10  # seconds from SIGTERM to SIGKILL
PR_SET_CHILD_SUBREAPER = 36


class Interrupt:
    """Whether a signal has asked the study to end; the same signal once more ends it at once."""
    asked_at = None

    @classmethod
    def catch(cls):
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(which) != signal.SIG_IGN:  # keep ignoring it, as under nohup
                signal.signal(which, cls.on_signal)

    @classmethod
    def on_signal(cls, which, _):
        if cls.asked_at is not None and time.monotonic() - cls.asked_at > 0.2:  # timeout(1) sends its signal twice
            signal.signal(which, signal.SIG_DFL)
            os.kill(os.getpid(), which)
        cls.asked_at = cls.asked_at or time.monotonic()


def adopt_orphans():
    """Processes whose parent ends become children of this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(of):
    """Ids of all processes below one."""
    children, found = {}, [of]
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has already ended
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as f:
                children.setdefault(int(f.read().rpartition(")")[2].split()[1]), []).append(int(name))
    for process in found:
        found += children.get(process, [])
    return found[1:]


def end_all(which):
    for process in descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has already ended, or belongs to another user
            os.kill(process, which)


def reap(process=None):
    """The status of the process if it has ended; False when no child is left."""
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if ended in (0, process):
            return status if ended else None


def watch(command, out, errors, timeout, study):
    """In a process of its own. study: a pipe that can be read when an interrupt is asked for, or the study is gone."""
    adopt_orphans()
    os.setsid()
    writing = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    begin, deadline, late, interrupted, gone, status, seconds = time.monotonic(), None, False, False, False, None, 0.0
    shell = os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ, setsid=True, setsigdef=[
        signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP], file_actions=[
            (os.POSIX_SPAWN_OPEN, fd, path, flags, 0o666)
            for fd, path, flags in ((0, "/dev/null", os.O_RDONLY), (1, out, writing), (2, errors, writing))])
    while True:
        ended, now = reap(shell), time.monotonic()
        if ended is False or (deadline is not None and now > deadline + PATIENCE):  # the others belong to another user
            break
        if ended is not None:
            status, seconds = ended, now - begin
            deadline = deadline or now  # processes that it left running would disturb the next run
        if gone:
            time.sleep(0.002)
        elif select.select([study], [], [], 0.002 if now - begin < 1 else 0.05)[0]:
            gone = not os.read(study, 1)
            interrupted = True
        late |= status is None and now - begin > timeout
        if (late or interrupted) and deadline is None:
            deadline = now + PATIENCE
            end_all(signal.SIGTERM)
        if gone or (deadline is not None and now >= deadline):
            deadline = min(deadline or now, now)
            end_all(signal.SIGKILL)
    code, killed = os.waitstatus_to_exitcode(status), 0
    if code < 0 or 128 < code < 128 + 65:  # the code with which a shell reports a command killed by a signal
        code, killed = 0, -code if code < 0 else code - 128
    return {"exit": code, "signal": killed, "seconds": seconds, "late": late, "interrupted": interrupted}


def run(command, out, errors, timeout):
    """What has become of the command: exit, signal, seconds, late, interrupted."""
    study, asks = os.pipe()
    told, tells = os.pipe()
    watcher = os.fork()
    if watcher == 0:
        try:
            os.close(asks)
            text = json.dumps(watch(command, out, errors, timeout, study))
        except BaseException as error:  # pylint: disable=broad-except  # nothing may go on as the study
            text = json.dumps({"error": str(error)})
        os.write(tells, text.encode())
        os._exit(0)
    os.close(study)
    os.close(tells)
    text, interrupted = b"", False
    while True:
        if select.select([told], [], [], 0.05)[0]:
            piece = os.read(told, 4096)
            if not piece:
                break
            text += piece
        if Interrupt.asked_at is not None and not interrupted:
            interrupted = True
            with contextlib.suppress(BrokenPipeError):  # it has just ended
                os.write(asks, b"!")
    os.waitpid(watcher, 0)
    os.close(told)
    os.close(asks)
    outcome = json.loads(text) if text else {"error": "the process that watched it was killed"}
    if "error" in outcome:
        end_all(signal.SIGKILL)
        raise Refused(f"cannot run {command[:60]}: {outcome['error']}")
    return outcome
