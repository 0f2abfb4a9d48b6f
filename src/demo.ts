/**
 * `npm run demo`: a tour of the main features. Starts the service on a temporary folder and a free port, uses it over
 * HTTP like any client, and leaves nothing behind.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { styleText } from 'node:util'
import { pino } from 'pino'
import type { z } from 'zod'
import type { AgentCreated } from './agents/schema.ts'
import type { EventData } from './executions/event-schema.ts'
import type { ExecutionResponse, ExecutionsResponse } from './executions/schema.ts'
import { table } from './lib/table.ts'
import { readSettings } from './settings.ts'
import { startService } from './start.ts'

const { stdout } = process
const INDENT = '  '
const WIDTH = Math.min(stdout.columns || 80, 96) - 2 * INDENT.length
/** Delay between deltas, so that a person can read along (ms). The offline model answers at once. */
const PACE = stdout.isTTY ? 20 : 0
const MODEL_SETTINGS =
  /^(DEFAULT_MODEL|(ANTHROPIC|OPENAI|GOOGLE_GENERATIVE_AI|GOOGLE|OPENAI_RESPONSES)_(API_KEY|BASE_URL|HEADERS)|COMPATIBLE_PROVIDERS|(HTTPS?|NO)_PROXY)$/i

// Respects NO_COLOR and non-terminals.
const paint = (style: 'bold' | 'cyan' | 'dim' | 'green', text: string) => styleText(style, text, { stream: stdout })
const say = (text = '') => stdout.write(`${text.replace(/^(?=.)/gm, INDENT)}\n`)
const title = (text: string) => say(`\n${paint('bold', text)}`)

type Call = (method: 'GET' | 'POST', path: string, body?: object) => Promise<Response>

/** Makes a call and prints it. Throws unless it succeeds. */
const caller =
  (url: string, token: string): Call =>
  async (method, path, body) => {
    say(paint('cyan', `${method} ${path}`))
    if (body) say(paint('dim', JSON.stringify(body, null, 2)))
    const response = await fetch(url + path, {
      method,
      headers: { Authorization: `Bearer ${token}`, ...(body && { 'Content-Type': 'application/json' }) },
      ...(body && { body: JSON.stringify(body) }),
    })
    if (!response.ok) throw new Error(`${method} ${path} answered ${response.status}: ${await response.text()}`)
    return response
  }

const bodyOf = async <Schema extends z.ZodType>(response: Response) => (await response.json()) as z.output<Schema>

type Names = keyof typeof EventData
type Event = { [Name in Names]: { event: Name; data: z.output<(typeof EventData)[Name]> } }[Names]

/** Yields the events of a stream (text/event-stream) as they arrive. */
async function* eventsOf({ body }: Response): AsyncGenerator<Event> {
  let rest = ''
  for await (const chunk of body?.pipeThrough(new TextDecoderStream()) ?? []) {
    const blocks = (rest + chunk).split('\n\n')
    rest = blocks.pop() ?? ''
    for (const block of blocks) {
      const [, event, data] = /^event: (.*)\ndata: (.*)$/m.exec(block) ?? []
      if (event && data) yield { event, data: JSON.parse(data) } as Event
    }
  }
}

/** Writes text as it arrives, and breaks its lines between words. */
function createWriter() {
  let column = 0
  let gap = ''
  return (text: string) => {
    for (const piece of text.match(/\s+|\S+/g) ?? []) {
      if (!piece.trim()) gap += piece
      else {
        const wraps = gap.includes('\n') || column + gap.length + piece.length > WIDTH
        stdout.write(`${wraps ? `\n${INDENT}` : gap}${piece}`)
        column = wraps ? piece.length : column + gap.length + piece.length
        gap = ''
      }
    }
  }
}

/** Streams a reply into the terminal, token by token. Returns the session to continue. */
async function converse(call: Call, agentId: string, message: string, sessionId?: string): Promise<string> {
  const input = { message, stream: true, ...(sessionId && { sessionId }) }
  const response = await call('POST', `/api/v1/agents/${agentId}/execute`, input)
  stdout.write(`\n${INDENT}`)
  const write = createWriter()
  for await (const { event, data } of eventsOf(response)) {
    if (event === 'message' && data.messageType === 'stream_event') {
      write(data.delta.text)
      await sleep(PACE)
    } else if (event === 'result' || event === 'error') {
      stdout.write('\n')
      if (event === 'result') return data.sessionId
      const found = await bodyOf<typeof ExecutionResponse>(await call('GET', `/api/v1/executions/${data.executionId}`))
      throw new Error(`${data.message}: ${found.execution.error}`)
    }
  }
  throw new Error('The stream ended without a result')
}

async function tour(folder: string): Promise<void> {
  const models = Object.fromEntries(Object.entries(process.env).filter(([name]) => MODEL_SETTINGS.test(name)))
  const settings = readSettings({ ...models, DATA_DIR: folder, PORT: '0', MODEL_IDLE_TIMEOUT: '30' })
  const service = await startService(settings, pino({ level: 'silent' }))
  const call = caller(service.url, service.firstToken ?? '')
  try {
    title('Muster in four steps')
    say(`The service is at ${service.url} for now, its data in a temporary folder.`)

    title('1. Create an agent')
    const agent = { name: 'Ada', systemPrompt: 'You are a helpful assistant. Be brief.' }
    const { id, name, status } = await bodyOf<typeof AgentCreated>(await call('POST', '/api/v1/agents', agent))
    say(`${paint('green', '✓')} ${name} is ${status}`)

    title('2. Run it on a message, and stream the reply')
    const sessionId = await converse(call, id, 'Name two things to leave to an agent.')

    title('3. Continue the session: the agent sees the earlier messages')
    await converse(call, id, 'Which of them did you name first?', sessionId)

    title('4. List the runs, which are stored with their events')
    const list = await call('GET', `/api/v1/executions?agentId=${id}`)
    const { executions } = await bodyOf<typeof ExecutionsResponse>(list)
    const rows = executions.map(({ message, status, model, executionTime, usage, usageEstimated }) => [
      message,
      status,
      model ?? '',
      `${executionTime} ms`,
      usageEstimated ? 'unknown' : `${usage.input_tokens} + ${usage.output_tokens}`,
    ])
    say(`\n${table([['MESSAGE', 'STATUS', 'MODEL', 'TIME', 'TOKENS'], ...rows])}\n`)
    say(paint('cyan', `GET /api/v1/executions/${executions[0]?.id}/events`))
    say('replays the last run, now or after a restart.')

    title('Next')
    say('npm start prints a token and a first curl command. README.md explains more.\n')
  } finally {
    await service.stop()
  }
}

if (process.argv.length > 2) {
  console.error('npm run demo takes no arguments. A model has its key in the environment, as for npm start.')
  process.exit(2)
}
const folder = mkdtempSync(join(tmpdir(), 'muster-demo-'))
process.on('exit', () => rmSync(folder, { recursive: true, force: true }))
// A pager or `head` has read enough.
stdout.on('error', () => process.exit())
process.on('SIGINT', () => process.exit(130)).on('SIGTERM', () => process.exit(143))
try {
  await tour(folder)
} catch (error) {
  console.error(`\n${INDENT}The demo failed. ${error instanceof Error ? error.message : error}`)
  process.exitCode = 1
}
