#!/usr/bin/env bash
# guidance 0.3.1 with an OpenAI-compatible server: gen(temperature=0) asks for no temperature, so the server samples at its default, 1.
#
# Expected: "temperature": 0 in the request, and the same greedy text every time.
# Seen 2026-11-30: the rule of OpenAI models sends a temperature only if it is not falsy; 0.5 is sent, 0 and 0.0 are not.
# Exits with 0 while that is so, with 1 once it changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet guidance==0.3.1 openai==3.57.0
cat >"$folder/case.py" <<'PY'
import http.server, json, sys, threading
import guidance
from guidance import assistant, gen, models, user

asked = []


class Server(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        chunk = {"id": "a", "object": "chat.completion.chunk", "created": 0, "model": "m"}
        choices = [{"index": 0, "delta": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for part in ({**chunk, "choices": choices}, {**chunk, "choices": [], "usage": usage}):
            self.wfile.write(f"data: {json.dumps(part)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
for temperature in (0.5, 0, 0.0):
    model = models.OpenAI("m", base_url=url, api_key="none", echo=False)
    with user():
        model += "hi"
    with assistant():
        model += gen("answer", max_tokens=5, temperature=temperature)
    print(f"gen(temperature={temperature}): the request has", asked[-1].get("temperature", "no temperature"))
changed = [body.get("temperature", "none") for body in asked] != [0.5, "none", "none"]
print(f"guidance {guidance.__version__}: {'changed' if changed else 'as seen: 0 is not sent'}")
sys.exit(1 if changed else 0)
PY
"$folder/venv/bin/python" "$folder/case.py" 2>/dev/null
