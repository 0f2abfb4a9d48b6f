// An MCP server on standard input and output whose tools misbehave. It begins as its first argument says.
import { spawn } from 'node:child_process'
import { appendFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

const [start = 'well'] = process.argv.slice(2)
const write = (text) => process.stdout.write(text)
/** Some programs print for people in the line of a message. */
const before = start === 'prints' ? '[1/2] Loading… {}\r\u001b[2K' : ''
const send = (message) => {
  const json = JSON.stringify({ jsonrpc: '2.0', ...message }, null, start === 'indents' ? 2 : 0)
  const note = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}'
  if (start === 'joins') write(note)
  if (start === 'frames') return write(`Content-Length: ${Buffer.byteLength(json)}\r\n\r\n${json}`)
  write(start === 'wide' ? Buffer.from(`\ufeff${json}\n`, 'utf16le') : `${before}${json}\n`)
}
const text = (content) => ({ content: [{ type: 'text', text: content }] })

/** Writes without end, as fast as the reader reads. */
const pour = (stream, piece) => {
  while (stream.write(piece));
  stream.once('drain', () => pour(stream, piece))
}
const block = () => {
  for (;;);
}

let calls = 0
let pings = 0
const tools = {
  echo: ({ text: input }) => text(input),
  env: () => text(JSON.stringify(process.env)),
  place: () => text(process.cwd()),
  pid: () => text(String(process.pid)),
  count: () => text(String(++calls)),
  pings: () => text(String(pings)),
  crash() {
    process.stderr.write(`first line\nThe token is ${process.env.API_TOKEN}, `)
    process.stderr.write('and this is the last line\n')
    process.exitCode = 3
    process.exit()
  },
  raise({ error }) {
    // As Python prints an error of a group, whose places fill the last lines.
    const place =
      '    |   File "/app/server.py", line 1, in <module>\n    |     await session()\n    |           ^^^^^^^^^\n'
    process.stderr.write(
      `Starting\n  + Exception Group Traceback (most recent call last):\n${place.repeat(20)}    | ${error}\n`,
    )
    process.stderr.write('    at Server.listen (/app/server.js:7:9)\n    +----')
    process.exitCode = 1
    process.exit()
  },
  pour: () => pour(process.stdout, 'no message '.repeat(1000)),
  indent: () => pour(process.stdout, `{\n${` "${'x'.repeat(100_000)}",\n`.repeat(100)}`),
  lines: () => pour(process.stdout, 'no message\n'.repeat(1000)),
  shout: () => pour(process.stderr, 'error '.repeat(1000)),
  huge: () => text('x'.repeat(9 * 1024 * 1024)),
  values: () => ({ content: [], structuredContent: Array.from({ length: 60_000 }, () => 0) }),
  garbage() {
    write('{"jsonrpc": \n\0\u001b[31m not JSON\n[]\n{"jsonrpc":"2.0","id":"nobody","result":{}}\nnull\n')
    return text('after garbage')
  },
  requests() {
    for (let id = 0; id < 1000; id++) send({ id: `own-${id}`, method: 'sampling/createMessage', params: {} })
  },
  hang: block,
  silent() {},
  learn() {
    tools.learned = () => text('Learned')
    send({ method: 'notifications/tools/list_changed' })
    return text('Listed')
  },
  secret: () => text(`The token is ${process.env.API_TOKEN}.`),
  child() {
    const script = 'process.on("SIGTERM", () => {}); setInterval(() => {}, 1000)'
    return text(String(spawn(process.execPath, ['-e', script], { stdio: 'inherit' }).pid))
  },
}

const answers = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion,
    capabilities: { tools: {} },
    serverInfo: { name: 'hostile', version: '1' },
  }),
  'server/discover': () => ({ supportedVersions: ['2026-07-28'], capabilities: { tools: {} } }),
  ping() {
    pings++
    return {}
  },
  'tools/list': () => ({ tools: Object.keys(tools).map((name) => ({ name, inputSchema: { type: 'object' } })) }),
  'tools/call': ({ name, arguments: input }) => tools[name](input),
}

if (process.env.PIDS) appendFileSync(process.env.PIDS, `${process.pid}\n`)
if (start === 'dies') {
  process.stderr.write('It lacks its configuration\n')
  process.exit(1)
}
if (start === 'stubborn') {
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => {})
  setInterval(() => {}, 1000)
}
if (start === 'prints') write('Listening for messages\n')
if (start === 'pours') pour(process.stdout, 'x'.repeat(100_000))

createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined || start === 'mute' || !method) return
  if (start === 'puzzled') return send({ id: null, error: { code: -32700, message: 'Parse error' } })
  const answer = start === 'latest' && method === 'initialize' ? undefined : answers[method]
  if (!answer) return send({ id, error: { code: -32601, message: 'Unknown method' } })
  if (start === 'refuses' && method === 'tools/list')
    return send({ id, error: { code: -32603, message: `No project for ${process.env.API_TOKEN}` } })
  const result = answer(params)
  const latest = { resultType: 'complete', ttlMs: 0, cacheScope: 'private' }
  if (result) send({ id, result: start === 'latest' ? { ...latest, ...result } : result })
})
