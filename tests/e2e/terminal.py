"""A program under a pseudo-terminal: what a person types, and what the screen is sent."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

CONTROLS = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z~]|\x1b[=>]|\r")


class Terminal:
    def __init__(self, command, *args, seconds=60, columns=200, state="/dev/null/none", color=True):
        self.seconds, self.text, self.at, self.raw = seconds, "", 0, b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm"
            os.environ["HOME"] = "/nonexistent"
            os.environ["XDG_STATE_HOME"] = state
            os.environ["NO_COLOR"] = "" if color else "1"
            os.execv(command, [command, *map(str, args)])
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        self.status = None

    def read(self, wait):
        """The output within this time, if any; False at the end."""
        ready, _, _ = select.select([self.fd], [], [], wait)
        if not ready:
            return True
        try:
            data = os.read(self.fd, 65536)
        except OSError: # the other side has closed
            data = b""
        self.raw += data
        self.text = CONTROLS.sub(b"", self.raw).decode(errors="replace")
        return bool(data)

    def expect(self, pattern):
        """Waits for the pattern in the output since the last match, and returns the match."""
        end = time.monotonic() + self.seconds
        while True:
            match = re.compile(pattern).search(self.text, self.at)
            if match:
                self.at = match.end()
                return match
            if time.monotonic() > end or not self.read(0.2):
                match = re.compile(pattern).search(self.text, self.at)
                if match:
                    self.at = match.end()
                    return match
                raise AssertionError(f"expected {pattern!r}, found {self.text[self.at:]!r} after {self.text[:self.at]!r}")

    def send(self, text):
        os.write(self.fd, text.encode())

    def line(self, text):
        self.send(text + "\r")

    def modes(self):
        return termios.tcgetattr(self.fd)

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self):
        """The exit status, as a shell has it."""
        end = time.monotonic() + self.seconds
        while time.monotonic() < end and self.read(0.1):
            pass
        while time.monotonic() < end:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
            time.sleep(0.05)
        raise AssertionError(f"the program does not end; it said {self.text!r}")

    def close(self):
        if self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        os.close(self.fd)
