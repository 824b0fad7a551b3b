"""A real browser for tests: Debian's chromium, headless, driven by chromedriver over the WebDriver protocol. Python's standard
library only."""
import base64
import glob
import http.client
import importlib.metadata
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest

from support import ROOT, SECONDS

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Tab": "\ue004", "Up": "\ue013", "Shift": "\ue008", "Alt": "\ue00a", "Control": "\ue009"}


def axe_script():
    """The text of axe-core, where a package that has it is installed; None."""
    try:
        for file in importlib.metadata.files("axe-playwright-python") or []:
            if file.name == "axe.min.js":
                return file.read_text(encoding="utf-8")
    except importlib.metadata.PackageNotFoundError:
        pass
    for path in glob.glob(os.path.join(ROOT, "build", "axe", "*", "axe.min.js")):  # where check.sh installs it with pip
        with open(path, encoding="utf-8") as file:
            return file.read()
    return None


class Browser:
    def __init__(self):
        self.driver = shutil.which("chromedriver")
        self.program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        if not self.driver or not self.program:
            raise unittest.SkipTest("there is no chromium with chromedriver (Debian: chromium, chromium-driver)")
        self.folder = tempfile.mkdtemp(prefix="setun-browser-")
        self.process = subprocess.Popen([self.driver, "--port=0", "--log-level=SEVERE"], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, start_new_session=True)
        self.connection = None
        try:
            self.begin()
        except BaseException:
            self.close()
            raise

    def begin(self):
        port = None
        for line in self.process.stdout:
            if b"was started successfully on port" in line:
                port = int(line.split()[-1].rstrip(b"."))
                break
        if port is None:
            raise AssertionError("chromedriver did not start")
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                     "--disable-extensions", "--disable-background-networking", "--disable-component-update",
                     f"--user-data-dir={self.folder}/profile", "--window-size=1280,860"]
        # An offer to save a password would receive the keys.
        options = {"binary": self.program, "args": arguments,
                   "prefs": {"credentials_enable_service": False, "profile.password_manager_enabled": False,
                             "download.default_directory": self.folder, "download.prompt_for_download": False}}
        self.path = ""
        session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}})
        self.path = f"/session/{session['sessionId']}"

    def close(self):
        if self.connection and getattr(self, "path", ""):
            try:
                self.call("DELETE", "")
            except (OSError, AssertionError, http.client.HTTPException):
                pass
        self.process.terminate()
        self.process.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, path, body=None):
        self.connection.request(method, self.path + path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        value = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise AssertionError(f"{path}: {value['error']}: {value['message']}")
        return value

    def devtools(self, command, **parameters):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, address):
        self.call("POST", "/url", {"url": address})

    def reload(self):
        self.call("POST", "/refresh", {})

    def run(self, script, *args):
        """The result of a function with this body; a promise is awaited."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def wait(self, script, *args, what=None):
        """Waits until an expression is true, and returns it."""
        deadline = time.monotonic() + 60
        while not (value := self.run(f"return {script}", *args)):
            if time.monotonic() > deadline:
                raise AssertionError(f"never: {what or script}")
            time.sleep(0.02)
        return value

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.call("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.call("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def keys(self, *keys):
        """Presses keys together, where the focus is: ("Alt", "n")."""
        codes = [KEYS.get(key, key) for key in keys]
        actions = [{"type": "keyDown", "value": code} for code in codes] + [{"type": "keyUp", "value": code} for code in reversed(codes)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def size(self, width, height):
        """The page's size: a window has a least width, which is larger than a phone's."""
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def dark(self, on):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if on else "light"}])

    def log(self):
        """The console's messages since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def picture(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("GET", "/screenshot")))

    def files(self):
        return [os.path.join(self.folder, name) for name in os.listdir(self.folder) if name.endswith(".json")]
