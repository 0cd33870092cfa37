"""A headless Chromium, driven by its own remote debugging protocol."""

import base64
import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.request import urlopen

import websocket

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 30.0
_OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--remote-debugging-port=0",
    "--remote-allow-origins=*", "--hide-scrollbars", "--window-size=1240,1100",
)  # fmt: skip


class Connection:
    """Calls of the protocol, one after the other, and what was told in between."""

    def __init__(self, address: str) -> None:
        self._socket = websocket.create_connection(address, timeout=PATIENCE_S)
        self._numbers = itertools.count(1)
        self.dialogs: list[str] = []
        self.refused: list[str] = []

    def close(self) -> None:
        self._socket.close()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv())
            self._note(message)
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])

    def _note(self, message: dict[str, Any]) -> None:
        """A dialog is what a script of an attacker would open here; the log tells what the policy refused."""
        if message.get("method") == "Page.javascriptDialogOpening":
            self.dialogs.append(message["params"]["message"])
            self._socket.send(
                json.dumps({"id": 0, "method": "Page.handleJavaScriptDialog", "params": {"accept": True}})
            )
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["source"] == "security":
            self.refused.append(message["params"]["entry"]["text"])


class Page(Connection):
    """One tab: what a person sees in it, and does."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def wait(self, condition: str) -> None:
        """Until the expression is true; a page that is being replaced counts as not yet."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            answer = self.call("Runtime.evaluate", expression=condition, returnByValue=True)
            if answer["result"].get("value") is True:
                return
            time.sleep(0.05)
        raise AssertionError(f"never came true: {condition}; the page says: {self.text()[:2_000]}")

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def type_into(self, selector: str, text: str) -> None:
        self.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of the element."""
        element = f"document.querySelector({json.dumps(selector)})"
        self.run(f"{element}.scrollIntoView({{block: 'center'}})")
        x, y = self.run(f"(r => [r.x + r.width / 2, r.y + r.height / 2])({element}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def show(self, scheme: Literal["light", "dark"]) -> None:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def screenshot(self, file: Path) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))


class Chromium:
    """The browser; each tab is of a person of their own, with cookies of their own."""

    def __init__(self, port: int) -> None:
        self._port = port
        with urlopen(f"http://127.0.0.1:{port}/json/version") as answer:
            self._browser = Connection(json.load(answer)["webSocketDebuggerUrl"])
        self._pages: list[Page] = []

    def person(self) -> Page:
        context = self._browser.call("Target.createBrowserContext")["browserContextId"]
        target = self._browser.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        page = Page(f"ws://127.0.0.1:{self._port}/devtools/page/{target}")
        self._pages.append(page)
        return page

    def close(self) -> None:
        for page in [*self._pages, self._browser]:
            page.close()


def executable() -> str | None:
    """Where a Chromium is, None without one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser of the test's own, ended with the block."""
    command = executable()
    assert command, "no Chromium is there: `make browser` installs one"
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [command, *_OPTIONS, f"--user-data-dir={folder}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            browser = Chromium(_port(Path(folder) / "DevToolsActivePort", process))
            yield browser
            browser.close()
        finally:
            process.terminate()
            process.wait()


def _port(file: Path, process: "subprocess.Popen[bytes]") -> int:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"Chromium ended with {process.returncode}"
        if file.exists() and (lines := file.read_text().splitlines()):
            return int(lines[0])
        time.sleep(0.05)
    raise AssertionError("Chromium does not listen")
