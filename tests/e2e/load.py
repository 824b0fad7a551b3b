"""Load on `setun serve`, for the tests on the small model and on a real one: clients that ask, read slowly, leave, and send
malformed requests, all at once."""
import json
import os
import random
import re
import resource
import threading
import time

from serving import ServerCase
from support import SEED, TEST_SECONDS, setun

CLIENTS = 64
MALFORMED = (b"\0\0\0", b"GET / HTTP/1.1\r\n\r\n", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n{{{{{",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 500\r\n\r\n{",
             b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 27\r\n\r\n{\"messages\":[{\"role\":\"a\"}]}",
             b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n{")
MARK = re.compile(r"mark[0-9]+x")


def allow_files(n):
    """Lets this process and its children open so many files, as far as the system allows. Returns the limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(n, hard if hard != resource.RLIM_INFINITY else n)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n, hard))
    return n


class LoadCase(ServerCase):
    """`prompts` are greedily continued by `setun run` first, without a server."""
    prompts, longest = (), 40

    def send(self, body, path="/v1/completions"):
        data = json.dumps(body).encode()
        s = self.server.socket()
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
        return s

    def leave(self, r, _):
        with self.send({"prompt": r.choice(self.prompts), "max_tokens": 200, "stream": r.random() < 0.5}):
            time.sleep(r.random() * 0.05)

    def disturb(self, r, _):
        with self.server.socket() as s:
            s.sendall(r.choice(MALFORMED))
            time.sleep(r.random() * 0.02)

    def read_slowly(self, r, _):
        with self.send({"prompt": r.choice(self.prompts), "max_tokens": r.randrange(1, self.longest), "temperature": 0, "stream": True}) as s:
            s.settimeout(300)
            got = b""
            while part := s.recv(300):
                got += part
                time.sleep(0.002)
        assert b"[DONE]" in got or b" 503 " in got[:20], got

    def text_of(self, reply, stream, member):
        """The text of a reply; None: the queue was full."""
        if reply.status == 503:
            time.sleep(0.02)
            return None
        assert reply.status == 200, reply.body
        self.answers += 1
        if not stream:
            return member(reply.json["choices"][0], "message")
        return "".join(member(e["choices"][0], "delta") or "" for e in reply.events if e != "[DONE]")

    def ask(self, r, _):
        prompt, stream = r.choice(self.prompts), r.random() < 0.5
        reply = self.server.post("/v1/completions", {"prompt": prompt, "max_tokens": r.randrange(1, self.longest), "temperature": 0, "stream": stream})
        text = self.text_of(reply, stream, lambda choice, _: choice["text"])
        assert text is None or self.want[prompt].startswith(text), (prompt, text)

    def talk(self, r, client):
        """A conversation with a mark of its client, whose prompt comes back with the answer."""
        mark, stream = f"mark{client}x", r.random() < 0.5
        body = {"prompt": f"Remember {mark}. {r.choice(self.prompts)}", "max_tokens": r.randrange(1, self.longest), "temperature": 0, "stream": stream,
                "echo": True}
        text = self.text_of(self.server.post("/v1/completions", body), stream, lambda choice, _: choice["text"])
        if text is None:
            return
        assert text.startswith(body["prompt"]) and set(MARK.findall(text)) == {mark}, text
        self.marked.append((body, text))

    def client(self, number, end):
        r = random.Random(f"{SEED} {number}")
        try:
            while time.monotonic() < end:
                what = r.choices((self.leave, self.disturb, self.read_slowly, self.talk, self.ask), (2, 2, 2, 4, 10))[0]
                what(r, number)
        except Exception as e:  # in a thread: reported to the test
            self.faults.append(repr(e))

    def wait_idle(self):
        deadline = time.monotonic() + 120
        while any(s["is_processing"] for s in self.server.get("/slots").json):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def check_load(self, model, seconds=TEST_SECONDS):
        self.want = {p: setun("run", model, "-p", p, "-n", self.longest, "--temp", 0, "--no-echo").stdout.decode()[:-1] for p in self.prompts}
        self.faults, self.marked, self.answers = [], [], 0
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self.client, args=(i, end)) for i in range(CLIENTS)]
        for t in threads:
            t.start()
        time.sleep(seconds / 3)
        early = self.server.memory()
        for t in threads:
            t.join()
        self.assertEqual(self.faults, [])
        self.assertGreater(self.answers, CLIENTS)
        self.wait_idle()
        for body, text in random.Random(SEED).sample(self.marked, min(16, len(self.marked))):  # the same alone, with an empty cache
            alone = self.server.post("/v1/completions", {**body, "stream": False, "cache_prompt": False}).json["choices"][0]["text"]
            self.assertEqual(alone, text)
        if not os.environ.get("SETUN_SANITIZE"):  # which keeps freed memory, to detect its use
            self.assertLess(self.server.memory() - early, 64 << 20)
