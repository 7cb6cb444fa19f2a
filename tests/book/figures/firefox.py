"""Firefox by the protocol that it speaks itself, WebDriver BiDi: messages in JSON over a web socket.

Playwright's own Firefox is another program, which it downloads, and its way to the system's asks for a command that
Firefox's long-term releases do not know.
"""

import json
import subprocess
import tempfile
from itertools import count

import websocket

READY = "WebDriver BiDi listening on "
WAIT = 60  # seconds for an answer


class Firefox:
    """One window of a Firefox without a screen and with a profile of its own."""

    def __init__(self, program):
        self.profile = tempfile.TemporaryDirectory()
        command = [program, "--headless", "--no-remote", "--profile", self.profile.name, "--remote-debugging-port=0"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        lines = iter(self.process.stderr.readline, "")
        address = next((line.partition(READY)[2].strip() for line in lines if READY in line), None)
        if not address:
            raise RuntimeError(f"{program} ended with {self.process.wait()} before it said where it listens")
        self.numbers = count(1)
        self.socket = websocket.create_connection(f"{address}/session", timeout=WAIT, suppress_origin=True)
        self.send("session.new", capabilities={})
        self.context = self.send("browsingContext.getTree")["contexts"][0]["context"]

    def send(self, method, **params):
        """The result of a command; events that come before it are passed over."""
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self.socket.recv())
            if answer.get("id") == number:
                if answer["type"] == "error":
                    raise RuntimeError(f"{method}: {answer['message']}")
                return answer["result"]

    def navigate(self, url):
        self.send("browsingContext.navigate", context=self.context, url=url, wait="complete")

    def run(self, function, *values):
        """What a function of JavaScript returns on the page for these values."""
        text = f"async (values) => JSON.stringify(await ({function})(...JSON.parse(values)) ?? null)"
        values = [{"type": "string", "value": json.dumps(values)}]
        target = {"context": self.context}
        answer = self.send(
            "script.callFunction", functionDeclaration=text, awaitPromise=True, target=target, arguments=values
        )
        if answer["type"] == "exception":
            raise RuntimeError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def press(self, key):
        """Press and release a key; the protocol names keys by characters, an arrow to the right by U+E014."""
        strokes = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        actions = [{"type": "key", "id": "keyboard", "actions": strokes}]
        self.send("input.performActions", context=self.context, actions=actions)

    def quit(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=WAIT)
        self.process.stderr.close()
        self.profile.cleanup()
