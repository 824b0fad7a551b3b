#!/usr/bin/env python3
"""Measures any server with OpenAI's /v1/completions: time to the first token, and tokens a second of all clients
together. Every client sends one streamed request after the other; all prompts differ from their first word on, so that no
server finds one of them in its cache.

usage: tools/bench_server.py URL [--clients 1,8,32] [--requests N] [--prompt WORDS] [--tokens N] [--seed N] [--model NAME] [--json]

  --requests  of each client (default 2)
  --prompt    words of a prompt, each about a token (default 500)
  --tokens    of an answer, which does not end earlier (default 64)
  --seed      of the prompts: give another one to measure a server again
  --json      a line of JSON for each number of clients, in place of the table

Greedy, with ignore_eos. Only Python's own modules are used; it takes one thread, which parses nothing while answers come
but the first event of each.
"""
import argparse
import json
import random
import selectors
import socket
import statistics
import sys
import time
import urllib.parse

WORDS = """time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money story fact
month lot right study book eye job word business issue side kind head house service friend father power hour game line end member
law car city community name president team minute idea body information back parent face others level office door health person
art war history party result change morning reason research girl guy moment air teacher force education""".split()


def prompt_of(seed, index, words):
    r = random.Random(f"{seed} {index}")
    return f"{r.randrange(10**6)} " + " ".join(r.choice(WORDS) for _ in range(words - 2))


class Request:
    """One request, from its connection to the last byte of its answer."""

    def __init__(self, address, host, body):
        data = json.dumps(body).encode()
        self.begin = time.perf_counter()
        self.first = self.end = None
        self.got = bytearray()
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
                            b"Content-Length: %d\r\n\r\n" % (host.encode(), len(data)) + data)

    def receive(self):
        """Reads the available bytes. False: the stream has ended."""
        part = self.socket.recv(1 << 16)
        now = time.perf_counter()
        self.got += part
        if self.first is None and any(self.texts()):
            self.first = now
        if part:
            return True
        self.end = now
        self.socket.close()
        return False

    def body(self):
        """The body so far, without the sizes of its chunks."""
        head, _, rest = bytes(self.got).partition(b"\r\n\r\n")
        if b"chunked" not in head.lower():
            return rest
        whole = b""
        while b"\r\n" in rest:
            size, _, rest = rest.partition(b"\r\n")
            n = int(size or b"0", 16)
            whole, rest = whole + rest[:n], rest[n + 2:]
        return whole

    def events(self):
        for line in self.body().split(b"\n")[:-1]:
            if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                yield json.loads(line[6:])

    def texts(self):
        return [c["text"] for e in self.events() for c in e["choices"] if c.get("text")]

    def usage(self):
        """(tokens of the prompt, tokens of the answer)."""
        if not self.got.startswith(b"HTTP/1.1 200") or b"data: [DONE]" not in self.body():
            sys.exit(f"expected a stream with its end, found {bytes(self.got[:2000])!r}")
        usage = [e["usage"] for e in self.events() if e.get("usage")][-1]
        return usage["prompt_tokens"], usage["completion_tokens"]


def measure(address, host, clients, o, first_index):
    """Runs all requests with this many clients: the seconds taken, and the requests."""
    selector, done, left = selectors.DefaultSelector(), [], clients * o.requests
    index = first_index

    def start():
        nonlocal index, left
        body = {"prompt": prompt_of(o.seed, index, o.prompt), "max_tokens": o.tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                "stream_options": {"include_usage": True}, **({"model": o.model} if o.model else {})}
        index, left = index + 1, left - 1
        request = Request(address, host, body)
        selector.register(request.socket, selectors.EVENT_READ, request)
    begin = time.perf_counter()
    for _ in range(clients):
        start()
    while selector.get_map():
        for key, _ in selector.select():
            if not key.data.receive():
                selector.unregister(key.fileobj)
                done.append(key.data)
                if left:
                    start()
    return time.perf_counter() - begin, done


def summary(clients, seconds, requests):
    usages = [r.usage() for r in requests]
    first = sorted(r.first - r.begin for r in requests)
    gaps = [(r.end - r.first) / max(1, n - 1) for r, (_, n) in zip(requests, usages)]
    return {"clients": clients, "requests": len(requests), "prompt_tokens": sum(p for p, _ in usages),
            "answer_tokens": sum(n for _, n in usages), "seconds": round(seconds, 3),
            "first_token_ms": round(1000 * statistics.median(first), 1), "first_token_ms_worst": round(1000 * first[-1], 1),
            "ms_per_token": round(1000 * statistics.median(gaps), 2),
            "tokens_per_second": round(sum(n for _, n in usages) / seconds, 1)}


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("url")
    parser.add_argument("--clients", default="1,8,32")
    for name, value in (("requests", 2), ("prompt", 500), ("tokens", 64), ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--model")
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    url = urllib.parse.urlsplit(o.url)
    if url.scheme != "http" or not url.hostname:
        parser.error(f"expected an address such as http://127.0.0.1:8080, found {o.url}")
    index = 0
    if not o.json:
        print(f"{'clients':>7} {'requests':>8} {'first token ms':>14} {'worst':>8} {'ms a token':>10} {'tokens/s':>9}")
    for clients in map(int, o.clients.split(",")):
        seconds, requests = measure((url.hostname, url.port or 80), url.netloc, clients, o, index)
        index += len(requests)
        s = summary(clients, seconds, requests)
        print(json.dumps(s) if o.json else
              f"{clients:>7} {s['requests']:>8} {s['first_token_ms']:>14} {s['first_token_ms_worst']:>8} {s['ms_per_token']:>10} "
              f"{s['tokens_per_second']:>9}", flush=True)


if __name__ == "__main__":
    main()
