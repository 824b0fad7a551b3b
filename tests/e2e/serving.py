"""What the tests of `setun serve` share: a server on a free port, requests over plain sockets and http.client, and events."""
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from support import COMMAND, SECONDS, TALES


def has_server():
    return subprocess.run([COMMAND, "help", "serve"], capture_output=True).returncode == 0


def skip_without_server():
    """Ends the program with status 77, after the reason, if the build has no server. For before support.main."""
    if not has_server():
        print("skipped: this build has no `serve` (SETUN_SERVER is OFF)")
        sys.exit(77)


def long_model(folder):
    """The tales model with a stated training length of 4096 tokens. Its texts beyond 256 are poor."""
    path = os.path.join(folder, "tales")
    os.mkdir(path)
    for name in os.listdir(TALES):
        if name != "config.json":
            os.symlink(os.path.join(TALES, name), os.path.join(path, name))
    with open(os.path.join(TALES, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as file:
        json.dump({**config, "max_position_embeddings": 4096}, file)
    return path


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        return self.json["error"]

    @property
    def events(self):
        """The data of a stream's events: JSON, or the text [DONE]."""
        found = []
        for block in self.body.decode().split("\n\n"):
            data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
            if data:
                found.append(data[0] if data[0] == "[DONE]" else json.loads(data[0]))
        return found


class Server:
    def __init__(self, *args, model=TALES, wait=True):
        self.process = subprocess.Popen([COMMAND, "serve", *([str(model)] if model else []), "--port", "0", *map(str, args)],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening on http://"):
            raise AssertionError(line + self.process.communicate()[1].decode())
        self.url = line.split()[2]
        self.host, self.port = self.url[7:].rsplit(":", 1)
        self.host, self.port = self.host.strip("[]"), int(self.port)
        if wait:
            self.wait()

    def wait(self):
        deadline = time.monotonic() + SECONDS
        while self.get("/health").status != 200:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the server did not become ready: " + self.process.communicate()[1].decode())
            time.sleep(0.02)

    def connection(self):
        return http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)

    def request(self, method, path, body=None, headers=None, connection=None):
        c = connection or self.connection()
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        c.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        reply = Reply(r.status, r.headers, r.read())
        if connection is None:
            c.close()
        return reply

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def socket(self):
        s = socket.create_connection((self.host, self.port), timeout=30)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return s

    def raw(self, data):
        """The response to these bytes, until the server closes the connection or is silent for two seconds."""
        with self.socket() as s:
            s.sendall(data)
            s.settimeout(2)
            got = b""
            try:
                while part := s.recv(65536):
                    got += part
            except (TimeoutError, ConnectionResetError):
                pass
            return got

    def raw_status(self, data):
        got = self.raw(data)
        return int(got.split(b" ")[1]) if got.startswith(b"HTTP/") else 0

    def memory(self):
        """Bytes that the process has in memory."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self, sig=signal.SIGTERM):
        """Stops it regularly. Returns (exit status, seconds that it took, stderr)."""
        begin = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(sig)
        err = self.process.communicate(timeout=SECONDS)[1].decode(errors="replace")
        return self.process.returncode, time.monotonic() - begin, err


class ServerCase(unittest.TestCase):
    """A server for all tests of the class."""
    options = ()
    model = TALES

    @classmethod
    def setUpClass(cls):
        if not has_server():
            raise unittest.SkipTest("this build has no `serve` (SETUN_SERVER is OFF)")
        cls.server = Server(*cls.options, model=cls.model)

    @classmethod
    def tearDownClass(cls):
        status, _, err = cls.server.stop(signal.SIGTERM)
        if status != 0:
            sys.exit(f"the server ended with status {status}: {err}")

    def refused(self, reply, status, *mentions, type=None):
        """The reply is this error, in OpenAI's shape, and its message mentions each of these."""
        self.assertEqual(reply.status, status, reply.body)
        self.assertLessEqual({"message", "type", "param", "code"}, set(reply.error))
        for word in mentions:
            self.assertIn(str(word), reply.error["message"])
        if type:
            self.assertEqual(reply.error["type"], type)


class TemplateCase(ServerCase):
    """The server has this chat template; with `long`, a model of a longer context."""
    template = ""
    long = False

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        path = os.path.join(cls.folder.name, "chat.jinja")
        with open(path, "w", encoding="utf-8") as file:
            file.write(cls.template)
        cls.options = (*cls.options, "--template", path)
        if cls.long:
            cls.model = long_model(cls.folder.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()
