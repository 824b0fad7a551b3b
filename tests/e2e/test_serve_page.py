#!/usr/bin/env python3
"""`setun serve`: the page at /, driven in a real browser through a proxy with a path of its own, as behind a web server. The proxy
can slow down an answer, or make up one that no small model would write. Skipped where there is no chromium; axe-core's checks where
the Python package axe-playwright-python is not installed (pip install --no-deps axe-playwright-python). SETUN_PICTURES: a folder for
pictures of the page."""
import http.client
import http.server
import json
import os
import re
import threading
import time
import unittest

from browser import Browser, axe_script
from serving import Server, has_server
from support import ROOT, main
from test_serve_text import TextCase

FOLDER = os.path.join(ROOT, "apps", "server", "page")
PREFIX = "/llm/"
HOSTILE = """# <img src=x onerror="window.hacked=1">

<script>window.hacked=1</script> <b onclick="window.hacked=1">bold</b> &lt;i&gt;

[a](javascript:window.hacked=1) [b](JaVaScRiPt:alert(1)) [c](data:text/html,<script>window.hacked=1</script>) [d](/v1/models)
[e](http://example.org/"onmouseover="window.hacked=1) ![f](http://example.org/track.png) <javascript:alert(1)>
[g](<javascript:alert(1)>) [h](java&#115;cript:alert(1)) [i](\x01javascript:alert(1)) https://example.org/?q=1&r=2).

```"><img src=x onerror=window.hacked=1>
</code></pre><script>window.hacked=1</script>
```

| <svg onload=window.hacked=1> | b |
|---|:-:|
| `<iframe src=javascript:alert(1)>` | **c** |
"""
MARKDOWN = """## Plan for a *small* garden

A paragraph with **strong**, *emphasis*, ~~struck~~, `code`, and a [link](https://example.org/a_(b) "title").
It goes on here, with snake_case_name and 2 * 3 * 4.

1. Dig the bed
   - 30 cm deep
   - remove *stones*
2. Sow
- [x] carrots
- [ ] beans

> Quoted words
> > and deeper ones

| Month | Work | Hours |
|:--|:-:|--:|
| March | dig \\| rake | 4 |
| April | sow | 12 |

```python
def water(bed):
    return "<b>" + bed  # not HTML
```
---
The end."""


def sse(*deltas, finish="stop", tail=b"data: [DONE]\n\n", delay=0.0):
    """An answer that the proxy makes up: a function that writes its events."""
    def write(handler):
        handler.begin()
        for delta in deltas:
            handler.event({"choices": [{"index": 0, "delta": delta}]})
            time.sleep(delay)
        if finish:
            handler.event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        handler.wfile.write(tail)
    return write


class Proxy(http.server.ThreadingHTTPServer):
    """Passes what is below PREFIX on to the server. `answer`: a function that answers the next conversations instead; `instead`: path:
    (status, JSON); `delay`: seconds after each event of a stream."""
    daemon_threads = True

    def __init__(self, server):
        super().__init__(("127.0.0.1", 0), Handler)
        self.server, self.answer, self.delay, self.asked, self.instead = server, None, 0, [], {}
        self.address = f"http://127.0.0.1:{self.server_port}{PREFIX}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # clients leave


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def begin(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()

    def event(self, data):
        self.wfile.write(b"data: " + json.dumps(data).encode() + b"\n\n")
        self.wfile.flush()

    def do_GET(self):
        self.pass_on(None)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path.endswith("/chat/completions"):
            self.server.asked.append(json.loads(body))
            if self.server.answer:
                self.server.answer(self)
                return
        self.pass_on(body)

    def pass_on(self, body):
        if not self.path.startswith(PREFIX):
            self.send_error(404)
            return
        made_up = self.server.instead.get(self.path.split("?")[0].removeprefix(PREFIX))
        if made_up:
            self.send_response(made_up[0])
            self.end_headers()
            self.wfile.write(json.dumps(made_up[1]).encode())
            return
        c = self.server.server.connection()
        c.request(self.command, self.path[len(PREFIX) - 1:], body, dict(self.headers))
        reply = c.getresponse()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name not in ("Transfer-Encoding", "Connection", "Date", "Server"):
                self.send_header(name, value)
        self.end_headers()
        try:
            while line := reply.readline():
                self.wfile.write(line)
                if self.server.delay and line == b"\n":
                    time.sleep(self.server.delay)
        finally:
            c.close()


@unittest.skipUnless(has_server(), "this build has no `serve` (SETUN_SERVER is OFF)")
class FilesTest(unittest.TestCase):
    """The page's files as they are, and as they are sent."""

    def test_files(self):
        size = 0
        for name in os.listdir(FOLDER):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                text = file.read()
            size += len(text.encode())
            outside = [address for address in re.findall(r"https?://[^\s'\"]+", text) if address != "http://www.w3.org/2000/svg"]
            self.assertEqual([a for a in outside if "[" not in a], [], name)
            self.assertNotRegex(text, r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", name)
        self.assertLess(size, 100_000)

    def test_sent(self):
        server = Server()
        try:
            page = server.get("/")
            self.assertEqual((page.status, page.headers["Content-Type"]), (200, "text/html; charset=utf-8"))
            for name in sorted(os.listdir(FOLDER)):
                with open(os.path.join(FOLDER, name), "rb") as file:
                    want = file.read()
                got = server.get("/page/" + name)
                self.assertEqual((got.status, got.body), (200, want), name)
                self.assertIn("default-src 'none'", got.headers["Content-Security-Policy"])
                self.assertNotIn("unsafe", got.headers["Content-Security-Policy"])
                self.assertEqual((got.headers["Cache-Control"], got.headers["X-Content-Type-Options"]), ("no-cache", "nosniff"))
                again = server.get("/page/" + name, headers={"If-None-Match": 'W/"x", W/' + got.headers["ETag"]})
                self.assertEqual((again.status, again.body, again.headers["ETag"]), (304, b"", got.headers["ETag"]))
            self.assertEqual(page.body, server.get("/page/index.html").body)
            for path in ("/page", "/page/", "/page/..%2fapp.js", "/page/%2e%2e/app.js", "/page/app.js/", "/page/nothing.js"):
                self.assertEqual(server.get(path).status, 404, path)
            head = server.request("HEAD", "/")
            self.assertEqual((head.status, head.body, head.headers["Content-Length"]), (200, b"", str(len(page.body))))
            self.assertEqual(server.post("/", {}).status, 405)
        finally:
            server.stop()


class PageCase(TextCase):
    options = ("--parallel", 2, "--temp", 0)
    shared = None  # the browser of both classes

    @classmethod
    def setUpClass(cls):
        PageCase.shared = PageCase.shared or Browser()
        cls.browser = cls.shared
        super().setUpClass()
        cls.proxy = Proxy(cls.server)
        cls.load()

    @classmethod
    def tearDownClass(cls):
        cls.proxy.shutdown()
        cls.proxy.server_close()
        super().tearDownClass()

    @classmethod
    def load(cls):
        """The page in a browser without stored data."""
        cls.browser.size(1280, 860)
        cls.browser.dark(False)
        cls.browser.open("about:blank")
        cls.browser.devtools("Storage.clearDataForOrigin", origin=cls.proxy.address[:-len(PREFIX)], storageTypes="all")
        cls.browser.log()
        cls.browser.open(cls.proxy.address)
        cls.browser.wait("document.querySelector('.empty p')?.textContent === 'Ask setun-tales-7m'")

    def setUp(self):
        self.proxy.answer, self.proxy.delay, self.proxy.asked, self.proxy.instead = None, 0, [], {}

    def tearDown(self):
        """Nothing violated the policy, and no script failed."""
        wrong = [entry for entry in self.browser.log() if "Failed to load resource" not in entry]
        self.assertEqual(wrong, [])
        self.assertFalse(self.browser.run("return window.hacked"))

    # ---- what tests do with the page ----

    def wait(self, script, *args):
        return self.browser.wait(script, *args)

    def picture(self, name):
        if folder := os.environ.get("SETUN_PICTURES"):
            self.browser.picture(os.path.join(folder, name + ".png"))

    def send(self, text, wait=True):
        self.browser.type("#input", text)
        self.browser.keys("Enter")
        if wait:
            self.idle()

    def idle(self):
        self.wait("!document.querySelector('#send').hidden && !document.querySelector('[aria-busy=true]')")

    def texts(self):
        return self.browser.run("return [...document.querySelectorAll('.message .body')].map((e) => e.innerText.trim())")

    def press(self, label, message=-1):
        """Clicks a button of a message, which may be visible only when the mouse is over it."""
        self.browser.run("""const all = [...document.querySelectorAll('.message')];
            all.at(arguments[0]).querySelector(`[aria-label="${arguments[1]}"]`).click()""", message, label)

    def pages_answer(self, *texts):
        """The server's answer to these messages, as the page shows it."""
        roles = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
        r = self.server.post("/v1/chat/completions", {"messages": roles}).json
        return r["choices"][0]["message"]["content"].strip(), r["usage"]["completion_tokens"]

    def saved(self):
        """The conversations in the browser's database, after what is to be written at once."""
        return self.browser.run("""await new Promise((f) => setTimeout(f, 20));
            const {name} = (await indexedDB.databases())[0];
            const db = await new Promise((f) => { const r = indexedDB.open(name); r.onsuccess = () => f(r.result); });
            const all = await new Promise((f) => {
              const r = db.transaction('conversations').objectStore('conversations').getAll(); r.onsuccess = () => f(r.result); });
            db.close();
            return all.map((c) => ({...c, nodes: [...c.nodes.values()], chosen: [...c.chosen]}));""")


class AnswersTest(PageCase):
    """Tests in one page, each in a conversation of its own."""

    def setUp(self):
        super().setUp()
        self.browser.size(1280, 860)
        self.browser.click("#new")

    def test_stop_and_continue(self):
        self.proxy.delay = 0.05
        self.send("The dog", wait=False)
        self.wait("document.querySelector('.assistant .body')?.innerText.length > 10")
        self.browser.keys("Escape")
        self.idle()
        part = self.texts()[1]
        self.assertIn("stopped", self.browser.run("return document.querySelector('.assistant .stats').textContent"))
        deadline = time.monotonic() + 20  # the server is told, through the proxy
        while any(s["is_processing"] for s in self.server.get("/slots").json):
            self.assertLess(time.monotonic(), deadline)
        self.proxy.delay = 0
        self.press("Continue the answer")
        self.wait("document.querySelector('.assistant .body').innerText.length > arguments[0]", len(part))
        self.idle()
        self.assertTrue(self.proxy.asked[-1]["continue_final_message"])
        self.assertTrue(self.texts()[1].startswith(part[:10]))
        self.assertEqual(self.browser.run("return document.querySelectorAll('.branches').length"), 0)

    def test_markdown(self):
        self.proxy.answer = sse({"content": MARKDOWN})
        self.send("Garden")
        html = self.browser.run("return document.querySelector('.assistant .body > .prose').innerHTML")
        for part in ('<h3 class="level-2">Plan for a <em>small</em> garden</h3>', "<strong>strong</strong>", "<del>struck</del>", "<code>code</code>",
                     '<a href="https://example.org/a_(b)" target="_blank" rel="noopener noreferrer nofollow">link</a>', "snake_case_name and 2 * 3 * 4.",
                     "<ol><li>Dig the bed<ul><li>30 cm deep</li><li>remove <em>stones</em></li></ul></li><li>Sow</li></ol>",
                     "carrots</li>", "<blockquote><p>Quoted words</p><blockquote><p>and deeper ones</p></blockquote></blockquote>",
                     '<td>March</td><td class="center">dig | rake</td><td class="right">4</td>', "<span>python</span>",
                     '<code>def water(bed):\n    return "&lt;b&gt;" + bed  # not HTML</code>', "<hr><p>The end.</p>"):
            self.assertIn(part, html)
        self.assertEqual(self.browser.run("return document.querySelectorAll('.assistant li [role=img]').length"), 2)
        # a text that comes in pieces ends as the same nodes, and its first blocks stay as they are
        pieces = self.browser.run("""const {render} = await import(new URL('page/markdown.js', document.baseURI));
            const box = document.createElement('div'); let first = null, kept = true;
            for (let i = 1; i <= arguments[0].length; i++) {
              render(box, arguments[0].slice(0, i));
              if (i === 60) first = box.firstElementChild; else if (i > 60) kept &&= box.firstElementChild === first;
            }
            return [box.innerHTML, kept];""", MARKDOWN)
        self.assertEqual(pieces, [html, True])

    def test_hostile_markdown(self):
        self.proxy.answer = sse({"content": HOSTILE, "reasoning_content": HOSTILE})
        self.send("<img src=x onerror=window.hacked=1>")
        self.assertEqual(self.browser.run("return document.querySelectorAll('.message :is(img, script, iframe, b, i, [onclick], [onerror])').length"), 0)
        links = self.browser.run("return [...document.querySelectorAll('.body a')].map((a) => a.href)")
        self.assertEqual(links, ["http://example.org/%22onmouseover=%22window.hacked=1", "http://example.org/track.png", "https://example.org/?q=1&r=2"])
        self.assertIn('<img src=x onerror="window.hacked=1">', self.texts()[1])
        # the time grows with the length alone
        worst = ("[" * 25000, "*a " * 20000, "_" * 25000 + "a", "`" * 3 + "`a" * 20000, "> " * 10000, "- " * 10000, "[a](" * 10000, "a" + " " * 25000 + "b",
                 "|" * 25000, "# a" + " #" * 15000 + " b", "\n" * 25000 + "x", "![" * 15000, "<https://" * 10000, "1. a\n" * 10000, "**a" * 15000 + "**" * 15000,
                 "https://" + "." * 25000, "~~" * 20000, "\\" * 50001, "- a\n\n" * 10000, "```\n" * 15000)
        took = self.browser.run("""const {render} = await import(new URL('page/markdown.js', document.baseURI));
            return arguments[0].map((text) => { const t = performance.now(); render(document.createElement('div'), text); return performance.now() - t; })""", worst)
        self.assertLess(max(took), 2000, [round(t) for t in took])

    def test_reasoning(self):
        self.proxy.answer = sse(*[{"reasoning_content": f"thought {i}. "} for i in range(15)], *[{"content": f"word {i} "} for i in range(15)], delay=0.03)
        self.send("Why?", wait=False)
        self.wait("document.querySelector('.thinking summary')?.innerText.startsWith('Reasoning\u2026')")
        self.browser.click(".reasoning summary")
        self.wait("document.querySelector('.reasoning .prose').innerText.includes('thought 9')")
        self.idle()
        self.assertEqual(self.browser.run("return [document.querySelector('.reasoning').open, document.querySelector('.reasoning summary').innerText]"), [True, "Reasoning"])
        self.assertTrue(self.texts()[1].startswith("word 0 word 1"))

    def test_errors(self):
        self.send("refuse me")
        self.assertIn("no such message", self.browser.run("return document.querySelector('.error:not([hidden])').innerText"))
        error = {"error": {"message": "the engine broke", "code": 500}}
        self.proxy.answer = sse({"content": "Half "}, finish=None, tail=b"data: " + json.dumps(error).encode() + b"\n\n")
        self.press("Edit the message", 0)
        self.browser.type(".editing textarea", " not")
        self.browser.click(".editing .first")
        self.wait("document.querySelector('.error:not([hidden])')?.innerText.includes('the engine broke')")
        self.assertEqual(self.texts()[1], "Half")
        self.proxy.answer = sse({"content": "Quarter "}, finish=None, tail=b"")
        self.browser.click(".error button")
        self.wait("document.querySelector('.error:not([hidden])')?.innerText.includes('was cut')")
        self.proxy.answer = None
        self.browser.click(".error button")
        self.idle()
        self.assertEqual(self.browser.run("return document.querySelectorAll('.error:not([hidden])').length"), 0)
        self.assertEqual(self.browser.run("return document.querySelectorAll('.message')[1].querySelector('.branches').innerText.trim()"), "3 / 3")

    def test_phone(self):
        self.proxy.answer = sse({"content": MARKDOWN + "\n\n" + "x" * 300 + "\n\n    " + "y" * 300 + "\n```\n" + "z" * 300 + "\n```\n" + "|a" * 40 + "|\n" + "|-" * 40 + "|"})
        self.send("A long line " + "w" * 200)
        for width in (320, 390, 768):
            self.browser.size(width, 700)
            self.wait("innerWidth === arguments[0]", width)
            self.assertLessEqual(self.browser.run("return document.scrollingElement.scrollWidth"), width)
            inside = self.browser.run("""return [...document.querySelectorAll('.message, .body, .foot, .box, .top, .top button, #send')].filter((e) => {
                const r = e.getBoundingClientRect(); return r.left < 0 || r.right > innerWidth; }).map((e) => e.className)""")
            self.assertEqual(inside, [], width)
            self.picture(f"phone-{width}")
        self.browser.size(320, 700)
        self.browser.click("#side-open")
        self.wait("document.activeElement.id === 'side-close'")
        self.assertTrue(self.browser.run("return document.querySelector('#main').inert"))
        self.browser.keys("Escape")
        self.assertEqual(self.browser.run("return [document.activeElement.id, document.querySelector('#main').inert]"), ["side-open", False])
        self.browser.click("#settings-open")
        self.assertLessEqual(self.browser.run("return document.querySelector('#settings').getBoundingClientRect().right"), 320)
        self.picture("phone-settings")
        self.browser.size(1280, 860)
        self.wait("document.querySelector('#scrim').hidden && !document.querySelector('#main').inert")
        self.browser.click("#settings-close")

    def test_server_state(self):
        self.wait("document.querySelector('.server').innerText.includes('0 of 2 busy')")
        slots = self.server.get("/slots").json
        slots[1].update(is_processing=True, n_prompt_tokens=30, n_prompt_tokens_processed=10, n_prompt_tokens_cache=20, next_token={"n_decoded": 98})
        self.proxy.instead["slots"] = (200, slots)
        self.send("Once upon a time")
        self.wait("document.querySelector('.server').innerText.includes('1 of 2 busy')")
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('.slots li')].map((e) => e.title)"), ["Slot 0: free", "Slot 1: 98 tokens written"])
        self.assertEqual(self.browser.run("return document.querySelectorAll('.slots .used')[1].getAttribute('width')"), "50")
        self.wait("/now [\\d.]+, most [1-9]/.test(document.querySelector('.plot').ariaLabel)")
        self.wait("document.querySelector('.plot .line').getAttribute('d').includes('L')")
        self.wait("/Cache: \\d+ % in use, [1-9]\\d* % kept/.test(document.querySelector('.cache .bar').ariaLabel)")


class ConversationsTest(PageCase):
    """Tests of what the browser remembers."""

    def setUp(self):
        super().setUp()
        self.load()

    def test_chat(self):
        self.proxy.delay = 0.02
        self.send("Once upon a time", wait=False)
        self.wait("document.querySelector('.assistant .body')?.innerText.length > 20 && !document.querySelector('#stop').hidden")
        self.assertEqual(self.browser.run("return document.querySelector('#spoken').textContent"), "The answer is being written.")
        self.proxy.delay = 0
        self.idle()
        want, tokens = self.pages_answer("Once upon a time")
        self.assertEqual(" ".join(self.texts()[1].split()), " ".join(want.split()))
        self.assertIn(f"{tokens} tokens", self.browser.run("return document.querySelector('.assistant .stats').textContent"))
        self.assertRegex(self.browser.run("return document.querySelector('.assistant .stats').textContent"), r"[\d.]+ tokens/s")
        self.assertRegex(self.browser.run("return document.querySelector('#context').textContent"), r"^\d+ of 256 tokens of context$")
        self.assertIn("nswer", self.browser.run("return document.querySelector('#spoken').textContent"))
        self.browser.keys("Shift", "Enter")
        self.assertEqual(self.browser.run("return document.querySelector('#input').value"), "\n")
        self.browser.type("#input", "a draft")
        before = self.texts()
        self.browser.reload()
        self.wait("document.querySelectorAll('.message').length === 2")
        self.assertEqual(self.texts(), before)
        self.assertEqual(self.browser.run("return [document.querySelector('#input').value, document.title]"),
                         ["\na draft", "Once upon a time \u2013 Setun"])

    def test_branches(self):
        self.send("A")
        first = self.texts()[1]
        self.browser.run("document.querySelector('#settings-open').click()")
        self.browser.type("#parameter-temperature", "1.5")
        self.browser.type("#parameter-seed", "5")
        self.browser.type("#parameter-stop", "xyz\\nq")
        self.browser.type("#system", "Be kind.")
        self.press("Another answer")
        self.idle()
        self.wait("document.querySelector('.assistant .branches')?.innerText.includes('2 / 2')")
        asked = self.proxy.asked[-1]
        self.assertEqual((asked["temperature"], asked["seed"], asked["stop"]), (1.5, 5, ["xyz\nq"]))
        self.assertEqual(asked["messages"], [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "A"}])
        self.press("Previous branch")
        self.assertEqual(self.texts(), ["A", first])
        # the user's message: a branch of its own, from which one comes back
        self.press("Edit the message", 0)
        self.browser.type(".editing textarea", "B")
        self.browser.keys("Enter")
        self.idle()
        self.assertEqual(self.texts()[0], "AB")
        self.assertEqual(self.proxy.asked[-1]["messages"][1:], [{"role": "user", "content": "AB"}])
        self.press("Previous branch", 0)
        self.assertEqual(self.texts(), ["A", first])
        # the answer: what the model is told afterwards
        self.press("Edit the answer")
        self.browser.run("document.querySelector('.editing textarea').value = 'Edited.'")
        self.browser.keys("Control", "Enter")
        self.assertEqual(self.texts(), ["A", "Edited."])
        self.send("C")
        self.assertEqual([m["content"] for m in self.proxy.asked[-1]["messages"]], ["Be kind.", "A", "Edited.", "C"])
        shown = self.texts()
        self.saved()
        self.browser.reload()
        self.wait("document.querySelectorAll('.message').length === 4")
        self.assertEqual(self.texts(), shown)
        # what is not a parameter's value is not taken
        self.browser.run("document.querySelector('#settings-open').click()")
        self.browser.type("#parameter-top_p", "7")
        self.assertEqual(self.browser.run("return document.querySelector('#parameter-top_p').ariaInvalid"), "true")
        self.assertNotIn("top_p", self.saved()[0]["params"])

    def test_reload_in_a_stream(self):
        self.proxy.answer = sse(*[{"content": f"word{i} "} for i in range(400)], delay=0.02)
        self.send("Go", wait=False)
        self.wait("document.querySelector('.assistant .body')?.innerText.includes('word20')")
        self.browser.reload()
        self.wait("document.querySelector('.assistant .body')?.innerText.includes('word20')")
        self.assertIn("stopped", self.browser.run("return document.querySelector('.assistant .stats').textContent"))
        self.proxy.answer = sse({"content": "More."})
        self.send("On")  # the conversation is saved with the next change, if not by the page that was left
        self.assertEqual(self.saved()[0]["nodes"][1]["state"], "stopped")

    def test_conversations(self):
        self.proxy.answer = sse({"content": "An answer."})
        names = "return [...document.querySelectorAll('#list .open')].map((e) => e.textContent)"
        self.send("Apples")
        self.browser.keys("Alt", "n")
        self.assertEqual(self.texts(), [])
        self.send("Pears")
        self.assertEqual(self.browser.run(names), ["Pears", "Apples"])
        self.browser.keys("Alt", "f")
        self.browser.keys("p")
        self.browser.keys("p")
        self.assertEqual(self.browser.run(names), ["Apples"])
        self.browser.click("#list .open")
        self.assertEqual(self.texts(), ["Apples", "An answer."])
        self.browser.run("document.querySelector('#list [aria-label^=Rename]').click()")
        self.browser.type("#list input", "Fruit <b>one</b>")
        self.browser.keys("Enter")
        self.browser.run("const s = document.querySelector('#search'); s.value = ''; s.dispatchEvent(new Event('input'))")
        self.assertEqual(self.browser.run(names), ["Fruit <b>one</b>", "Pears"])
        self.browser.run("document.querySelector('#list [aria-label^=Delete]').click()")
        self.wait("document.querySelector('#notice').textContent.includes('Deleted')")
        self.assertEqual(([c["title"] for c in self.saved()], self.texts()), (["Pears"], []))
        self.browser.run("document.querySelector('#notice button').click()")
        self.assertEqual(sorted(c["title"] for c in self.saved()), ["Fruit <b>one</b>", "Pears"])
        # one goes on while another is shown
        self.proxy.answer = sse(*[{"content": f"w{i} "} for i in range(20)], delay=0.02)
        self.send("More", wait=False)
        self.wait("document.querySelector('#list .dot')")
        self.browser.keys("Alt", "n")
        self.wait("!document.querySelector('#list .dot')")
        self.browser.run("document.querySelector('#list .open').click()")
        self.assertEqual(self.texts()[2:], ["More", " ".join(f"w{i}" for i in range(20))])

    def test_files(self):
        self.proxy.answer = sse({"content": "An answer.", "reasoning_content": "Why?"})
        self.send("Apples")
        self.press("Another answer")
        self.idle()
        before = self.saved()
        self.browser.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=self.browser.folder)
        self.browser.click("#export")
        deadline = time.monotonic() + 30
        while not self.browser.files():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        path = self.browser.files()[0]
        with open(path, encoding="utf-8") as file:
            exported = json.load(file)
        self.assertEqual(exported["conversations"], before)
        self.browser.run("document.querySelector('#list [aria-label^=Delete]').click()")
        self.wait("document.querySelector('#notice').textContent.includes('Deleted')")
        self.assertEqual(self.saved(), [])
        self.assertEqual(self.imported(path), "Imported 1 of 1 conversations.")
        self.assertEqual(self.saved(), before)
        self.assertEqual(self.imported(path), "Imported 0 of 1 conversations. 1 were there already.")
        changed = json.loads(json.dumps(exported))
        changed["conversations"][0]["title"] = "Other"
        self.assertEqual(self.imported(self.written(changed)), "Imported 1 of 1 conversations.")
        before = self.saved()
        self.assertEqual(len(before), 2)
        bad = []
        for edit, mention in (
                (lambda c: c.update(title=1), "conversations[0].title: expected a text"),
                (lambda c: c.update(id="../x"), "conversations[0].id"),
                (lambda c: c["nodes"][1].update(parent="nothing"), "conversations[0].nodes[1].parent"),
                (lambda c: c["nodes"][1].update(parent=c["nodes"][1]["id"]), "conversations[0].nodes[1].parent"),
                (lambda c: c["nodes"][1].update(role="system"), "nodes[1].role: expected user or assistant"),
                (lambda c: c["nodes"][2].update(id=c["nodes"][1]["id"]), "nodes[2].id"),
                (lambda c: c["nodes"][1].update(created=1e300), "nodes[1].created"),
                (lambda c: c["nodes"][1].update(state="?"), "nodes[1].state"),
                (lambda c: c["params"].update(temperature="hot"), "params.temperature: expected a number"),
                (lambda c: c.update(chosen=[["__proto__", "x"]]), "chosen[0]"),
                (lambda c: c.update(nodes={}), "nodes: expected a list")):
            file = json.loads(json.dumps(exported))
            edit(file["conversations"][0])
            file["conversations"].insert(1, {**exported["conversations"][0], "id": "fine"})
            bad.append((json.dumps(file), mention))
        bad += [("{", "not JSON"), ("[]", "format"), ('{"format":"setun-conversations","version":2}', "version"), ("\0", "JSON")]
        said = self.browser.run("""const {readExport} = await import(new URL('page/store.js', document.baseURI));
            return arguments[0].map((text) => { try { readExport(text); return ''; } catch (e) { return e.message; } })""", [text for text, _ in bad])
        for (text, mention), message in zip(bad, said):
            self.assertIn(mention, message)
        self.assertIn("conversations[0].title", self.imported(self.written(bad[0][0])))
        self.assertEqual(self.saved(), before)

    def written(self, data):
        path = os.path.join(self.browser.folder, "bad.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(data if isinstance(data, str) else json.dumps(data))
        return path

    def imported(self, path):
        self.browser.run("document.querySelector('#notice').replaceChildren()")
        self.browser.run("document.querySelector('#import-file').hidden = false")
        self.browser.type("#import-file", path)
        return self.wait("document.querySelector('#notice span')?.textContent")

    def test_key(self):
        server = Server("--api-key", "secret", "--template", self.options[-1])
        proxy = Proxy(server)
        try:
            self.browser.open(proxy.address)
            self.wait("document.querySelector('#key-dialog').open")
            self.browser.type("#key", "wrong")
            self.browser.click("#key-form .first")
            self.wait("document.querySelector('#key-dialog').open && document.querySelector('#key-why').textContent.includes('is wrong')")
            self.browser.type("#key", "secret")
            self.browser.click("#key-form .first")
            self.send("A dog")
            self.assertTrue(self.texts()[1])
            self.wait("document.querySelector('.server').innerText.includes('of 4 busy')")
            self.assertEqual(self.browser.run("return [Object.keys(localStorage).filter((k) => k.endsWith(':key')), Object.keys(sessionStorage).length]"), [[], 1])
            self.browser.reload()
            self.wait("document.querySelectorAll('.message').length === 2")
            self.assertFalse(self.browser.run("return document.querySelector('#key-dialog').open"))
        finally:
            proxy.shutdown()
            proxy.server_close()
            server.stop()

    def test_server_that_loads(self):
        self.proxy.instead["health"] = (503, {"error": {"message": "Loading model"}})
        self.proxy.instead["v1/models"] = (200, {"data": [{"id": "unloaded", "status": {"value": "unloaded"}},
                                                          {"id": "setun-tales-7m", "status": {"value": "loaded"}}, {"id": "other"}]})
        self.browser.reload()
        self.wait("document.querySelector('#context').textContent === 'Loading model'")
        self.proxy.instead.pop("health")
        self.wait("document.querySelector('.empty p').textContent === 'Ask setun-tales-7m' && !document.querySelector('#model').hidden")
        self.browser.run("const s = document.querySelector('#model'); s.value = 'other'; s.dispatchEvent(new Event('change'))")
        self.wait("document.querySelector('.empty p').textContent === 'Ask other'")
        # what the browser has no room for is shown all the same, and kept for the next time as long as there is any room
        origin = self.proxy.address[:-len(PREFIX)]
        self.browser.devtools("Storage.overrideQuotaForOrigin", origin=origin, quotaSize=1)
        self.addCleanup(self.browser.devtools, "Storage.overrideQuotaForOrigin", origin=origin)
        self.proxy.answer = sse({"content": "word " * 20000})
        self.send("A")
        self.assertEqual(self.proxy.asked[-1]["model"], "other")
        # the slots are those of /metrics: /slots would load a model
        self.wait("document.querySelector('.slots').innerText.includes('0 of 2 busy') && !document.querySelector('.slots li')")
        self.wait("document.querySelector('#notice').textContent.includes('no more room')")
        big = {"id": "x", "title": "X" * 100000, "named": True, "system": "", "params": {}, "created": 1, "changed": 1, "nodes": [], "chosen": []}
        said = self.imported(self.written({"format": "setun-conversations", "version": 1, "conversations": [big]}))
        self.assertRegex(said, "Nothing was imported.*no more room")
        self.assertEqual(self.saved(), [])
        self.browser.devtools("Storage.overrideQuotaForOrigin", origin=origin)
        self.browser.reload()
        self.wait("document.querySelectorAll('.message').length === 2")
        self.assertEqual(len(self.texts()[1].split()), 20000)

    def test_axe(self):
        axe = axe_script()
        if not axe:
            self.skipTest("axe-core is not installed (pip install --no-deps axe-playwright-python)")
        self.proxy.answer = sse({"content": MARKDOWN, "reasoning_content": "Because."})
        self.send("Garden")
        self.press("Another answer")
        self.idle()
        self.browser.keys("Alt", "n")
        self.proxy.answer = sse({"content": "Half"}, finish=None, tail=b"")
        self.send("Broken")
        self.browser.run("document.querySelectorAll('#list .open')[1].click()")

        def check(what):
            self.browser.run("document.getAnimations().forEach((a) => a.cancel())")
            if not self.browser.run("return 'axe' in window"):
                self.browser.devtools("Runtime.evaluate", expression=axe)
            found = self.browser.run("return (await axe.run()).violations.map((v) => [v.id, v.nodes.map((n) => n.html + n.failureSummary)])")
            self.assertEqual(found, [], what)
        for name in ("light", "dark"):
            self.browser.dark(name == "dark")
            check(name)
            self.picture(name)
        self.browser.run("document.querySelectorAll('#list .open')[0].click()")
        self.picture("error")
        self.browser.keys("Alt", "s")
        check("an error, and the settings")
        self.picture("settings")
        self.browser.keys("Alt", "h")
        check("help")
        self.picture("help")
        self.browser.keys("Escape")
        self.browser.size(360, 740)
        check("phone")  # where the settings lie over the messages


def tearDownModule():
    if PageCase.shared:
        PageCase.shared.close()


if __name__ == "__main__":
    main()
