#!/bin/sh
# The REST API with curl: creates an agent, runs it, and follows a second run as a stream.
#
#   TOKEN=mst_… sh examples/curl.sh
set -eu
api="${MUSTER_URL:-http://127.0.0.1:3000}/api/v1"

call() {
  method=$1 path=$2
  shift 2
  curl -sS --fail-with-body -X "$method" "$api$path" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' "$@"
}

# Prints the text of a field at the top of an answer.
field() {
  sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

agent=$(call POST /agents -d '{"name": "Ada", "systemPrompt": "You are Ada."}' | grep -o '"id":"[^"]*"' | head -n 1 | cut -d '"' -f 4)
result=$(call POST "/agents/$agent/execute" -d '{"message": "Hello"}' | field result)
echo "$result"
call POST "/agents/$agent/execute/stream" -N -d '{"message": "Hello again"}' | grep '^event: '
