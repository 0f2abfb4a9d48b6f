"""The REST API with Python's standard library alone: runs an agent, and follows a second run as a stream.

    TOKEN=mst_… python3 examples/python_stdlib.py
"""

import json
import os
import urllib.error
import urllib.request
import uuid

API = os.environ.get("MUSTER_URL", "http://127.0.0.1:3000") + "/api/v1"
TOKEN = os.environ["TOKEN"]


def open_url(method, path, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(API + path, data=data, method=method)
    request.add_header("Authorization", f"Bearer {TOKEN}")
    request.add_header("Content-Type", "application/json")
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    return urllib.request.urlopen(request)


def call(method, path, body=None, **headers):
    with open_url(method, path, body, **headers) as response:
        return json.load(response)


def events(response):
    """Yields the name and the data of each event of a stream."""
    name, data = "", ""
    for line in response:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text[7:]
        elif text.startswith("data: "):
            data = text[6:]
        elif not text and data:
            yield name, json.loads(data)
            name, data = "", ""


agent = call("POST", "/agents", {"name": "Ada", "systemPrompt": "You are Ada."})["id"]

# Sent again with the same key, it runs nothing a second time.
key = str(uuid.uuid4())
first = call("POST", f"/agents/{agent}/execute", {"message": "Hello"}, Idempotency_Key=key)
again = call("POST", f"/agents/{agent}/execute", {"message": "Hello"}, Idempotency_Key=key)
print(first["result"], first["executionId"] == again["executionId"])

with open_url("POST", f"/agents/{agent}/execute/stream", {"message": "Again"}) as stream:
    for name, data in events(stream):
        if data.get("messageType") == "stream_event":
            print(data["delta"]["text"], end="")
        if name == "result":
            print(f"\n{data['status']}")

try:
    call("GET", "/agents/unknown")
except urllib.error.HTTPError as error:
    print(error.code, json.load(error)["message"])
