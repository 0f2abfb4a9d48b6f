// The client that the conformance tests start: it asks the process of the tests to act as one, and exits with 1 if that fails.
const query = new URLSearchParams({
  url: process.argv.at(-1),
  scenario: process.env.MCP_CONFORMANCE_SCENARIO,
  context: process.env.MCP_CONFORMANCE_CONTEXT ?? '{}',
})
const answer = await fetch(`${process.env.MUSTER_CONTROL}/?${query}`)
process.exit(answer.ok ? 0 : 1)
