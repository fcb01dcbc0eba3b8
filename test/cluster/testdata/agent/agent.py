"""An agent without a mind of its own: each line of its prompt that begins with "$ " is a
tool that its model wants called. It asks the model before each, and writes its events as
Claude Code does."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request


def say(event):
    print(json.dumps(event), flush=True)


def ask(turn):
    body = {"model": "m-1", "max_tokens": 9, "messages": [{"role": "user", "content": f"turn {turn}"}]}
    request = urllib.request.Request(
        os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages",
        data=json.dumps(body).encode(),
        headers={"x-api-key": os.environ["ANTHROPIC_API_KEY"], "content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["usage"]


def main():
    say({"type": "system", "subtype": "init", "model": "m-1"})
    turns = 0
    for line in sys.stdin.read().splitlines():
        if not line.startswith("$ "):
            continue
        turns += 1
        try:
            usage = ask(turns)
        except urllib.error.HTTPError as e:
            say({"type": "result", "subtype": "error_during_execution", "is_error": True, "num_turns": turns, "result": e.read().decode()})
            sys.exit(1)
        call = {"type": "tool_use", "id": f"call_{turns}", "name": "Bash", "input": {"command": line[2:]}}
        say({"type": "assistant", "message": {"id": f"msg_{turns}", "role": "assistant", "content": [call], "usage": usage}})
        done = subprocess.run(["bash", "-c", line[2:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        text = f"{done.stdout[-4000:].decode(errors='replace')}[exit code {done.returncode}]"
        say({"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": text}]}})
    say({"type": "result", "subtype": "success", "is_error": False, "num_turns": turns, "result": "The work is done."})


main()
