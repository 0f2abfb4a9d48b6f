"""The REST API with `requests`: runs an agent, and follows a second run as a stream.

    pip install requests
    TOKEN=mst_… python3 examples/python_requests.py
"""

import json
import os
import uuid

import requests

API = os.environ.get("MUSTER_URL", "http://127.0.0.1:3000") + "/api/v1"
session = requests.Session()
session.headers["Authorization"] = f"Bearer {os.environ['TOKEN']}"


def post(path, body, **options):
    response = session.post(API + path, json=body, **options)
    response.raise_for_status()
    return response


agent = post("/agents", {"name": "Ada", "systemPrompt": "You are Ada."}).json()["id"]
run = f"/agents/{agent}/execute"

# Sent again with the same key, it runs nothing a second time.
headers = {"Idempotency-Key": str(uuid.uuid4())}
first, again = (post(run, {"message": "Hello"}, headers=headers).json() for _ in range(2))
print(first["result"], first["executionId"] == again["executionId"])

with post(f"{run}/stream", {"message": "Again"}, stream=True) as stream:
    for line in stream.iter_lines():
        if not line.startswith(b"data: "):
            continue
        data = json.loads(line[6:])
        if data.get("messageType") == "stream_event":
            print(data["delta"]["text"], end="", flush=True)
        elif data.get("status"):
            print(f"\n{data['status']}")

missing = session.get(API + "/agents/unknown")
print(missing.status_code, missing.json()["message"])
