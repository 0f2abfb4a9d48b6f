import { join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { createLog } from '../../src/lib/log.ts'
import type { DeclaredProgram } from '../../src/lib/mcp-config.ts'
import type { McpClient } from '../../src/mcps/client/client.ts'
import { secretsOf } from '../../src/mcps/declared-secrets.ts'
import { createPrograms, type ProgramLimits, type Programs } from '../../src/mcps/programs/programs.ts'

/** Programs of declared MCP servers that crash, flood, hang and ignore signals (contract-2.md section 2.12). */

const HOSTILE = join(import.meta.dirname, '..', 'support', 'hostile-program.js')
const TOKEN = 'canary-token-1234567890'
const { signal } = new AbortController()

const logs: string[] = []
const log = createLog('debug', { write: (line: string) => void logs.push(line) })
const opened: Programs[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((programs) => programs.stop()))
  logs.length = 0
})

/** Manages programs with short limits. `connect` uses the hostile program, in a space. */
function open(limits: Partial<ProgramLimits> = {}, start = 'well', fields: Partial<DeclaredProgram> = {}) {
  const programs = createPrograms(log, { backoff: { first: 20, most: 100 }, ping: 300, grace: 100, ...limits })
  opened.push(programs)
  const program: DeclaredProgram = {
    kind: 'program',
    name: 'hostile',
    command: process.execPath,
    args: [HOSTILE, start],
    cwd: null,
    env: { API_TOKEN: TOKEN },
    organizations: null,
    description: null,
    disabled: false,
    permissions: [],
    ...fields,
  }
  const failures: string[] = []
  const onFailure = (_: string, reason: string) => failures.push(reason)
  const connect = (spaceId = 'space', until: AbortSignal = signal): Promise<McpClient> =>
    programs.connect({ mcpId: 'mcp', spaceId, program, secrets: secretsOf(program), onFailure }, until)
  return { programs, connect, failures }
}

const read = async (client: McpClient, tool: string, input: object = {}) =>
  (await client.call(tool, input, signal)).content

/** Returns whether a process exists. A zombie whose parent has not asked for it yet does not count. */
function exists(pid: string | number): boolean {
  try {
    process.kill(Number(pid), 0)
    return true
  } catch {
    return false
  }
}
const ends = (pid: string | number) => expect.poll(() => exists(pid)).toBe(false)

describe('a program', () => {
  it('is shared by the runs of a space, and each space has its own', async () => {
    const { connect } = open()
    const [one, same, other] = await Promise.all([connect('a'), connect('a'), connect('b')])
    expect(one.tools.map(({ name }) => name)).toContain('echo')
    expect(await read(one, 'echo', { text: 'Hello' })).toBe('Hello')
    expect(await read(one, 'pid')).toBe(await read(same, 'pid'))
    expect(await read(one, 'pid')).not.toBe(await read(other, 'pid'))
    await one.close()
    expect(await read(same, 'count')).toBe('1')
  })

  it('gets the declared environment and nothing of the environment of the service', async () => {
    const env = { API_TOKEN: TOKEN, LANG: 'C' }
    const client = await open({}, 'well', { env, cwd: '/tmp' }).connect()
    expect(JSON.parse(await read(client, 'env'))).toEqual({ API_TOKEN: '[removed]', LANG: 'C' })
    expect(await read(client, 'place')).toBe('/tmp')
    expect(await read(await open().connect(), 'place')).toBe('/')
  })

  it('is stopped when no run uses it, and started again for the next run', async () => {
    const { connect } = open({ idle: 10 })
    const client = await connect()
    const pid = await read(client, 'pid')
    await client.close()
    await ends(pid)
    expect(await read(await connect(), 'pid')).not.toBe(pid)
    expect(logs.join()).not.toContain('failed')
  })

  it('a program that speaks the latest revision only works', async () => {
    const client = await open({}, 'latest').connect()
    expect(await read(client, 'echo', { text: 'Hello' })).toBe('Hello')
  })

  it('a program that announces another tool, or starts again, is asked for its tools again, once', async () => {
    const client = await open().connect()
    expect(await client.refresh(signal)).toBe(false)
    await read(client, 'learn')
    expect(await client.refresh(signal)).toBe(true)
    expect(client.tools.at(-1)?.name).toBe('learned')
    expect(await client.refresh(signal)).toBe(false)
    // It forgets the tool.
    await read(client, 'crash')
    await read(client, 'pid')
    expect(await client.refresh(signal)).toBe(true)
    expect(client.tools.at(-1)?.name).not.toBe('learned')
    expect(await client.refresh(signal)).toBe(false)
  })

  it.each(['indents', 'wide', 'joins'])(
    'a program that writes its messages in another form works: %s',
    async (form) => {
      const client = await open({}, form).connect()
      expect(await read(client, 'echo', { text: 'Hello' })).toBe('Hello')
      expect(await read(client, 'garbage')).toBe('after garbage')
    },
  )

  it('a program that refuses to list its tools has its own words in the error for people', async () => {
    const error = await open({}, 'refuses')
      .connect()
      .catch((thrown) => thrown)
    expect(error.messageForPeople).toBe('it answered with the error -32603: No project for [removed]')
  })

  it('a program that answers texts among its messages works', async () => {
    const client = await open({}, 'prints').connect()
    expect(await read(client, 'garbage')).toBe('after garbage')
    expect(await read(client, 'secret')).toBe('The token is [removed].')
  })
})

describe('a call of a program', () => {
  it('a call of a program that crashes has its last lines without secrets; the next one works', async () => {
    const { connect, failures } = open()
    const client = await connect()
    const { content, isError } = await client.call('crash', {}, signal)
    expect(isError).toBe(true)
    expect(content).toBe(
      'The call failed: its program ended with the exit code 3. Its last output:\nfirst line\nThe token is [removed], and this is the last line\nThe tool may have acted: check before you call it again',
    )
    expect(failures).toHaveLength(1)
    expect(await read(client, 'echo', { text: 'again' })).toBe('again')
    expect(logs.join()).not.toContain(TOKEN)
  })

  it.each([
    ['pour', 'a message of more than 8 MB'],
    ['indent', 'a message of more than 8 MB'],
    ['lines', 'too many messages'],
    ['huge', 'a message of more than 8 MB'],
    ['values', 'a message with too many values'],
    ['requests', 'too many messages'],
    ['shout', 'more than 32 MB at once'],
  ])('a call of a program that floods its output (%s) fails, and the program ends', async (tool, reason) => {
    const client = await open().connect()
    const pid = await read(client, 'pid')
    const { content, isError } = await client.call(tool, {}, signal)
    expect(isError).toBe(true)
    expect(content).toContain(`The call failed: its program sent ${reason}`)
    expect(content.length).toBeLessThan(4100)
    await ends(pid)
    expect(await read(client, 'echo', { text: 'again' })).toBe('again')
  })

  it('a call of a program that hangs ends with its signal, and the program with it', async () => {
    const client = await open().connect()
    const pid = await read(client, 'pid')
    await expect(client.call('hang', {}, AbortSignal.timeout(100))).rejects.toThrow('timeout')
    await ends(pid)
    expect(logs.join()).toContain('did not answer any more')
    expect(await read(client, 'echo', { text: 'again' })).toBe('again')
  })

  it('a call of a program that gets no answer does not stop a program that answers others', async () => {
    const { connect } = open({ ping: 60_000 })
    const client = await connect()
    const pid = await read(client, 'pid')
    await expect(client.call('silent', {}, AbortSignal.timeout(50))).rejects.toThrow('timeout')
    await expect.poll(() => read(client, 'pings')).toBe('1')
    expect(await read(client, 'pid')).toBe(pid)
  })
})

describe('a program that fails', () => {
  it('a program that fails at its start is an unusable server, with its last lines', async () => {
    const { connect } = open({}, 'dies')
    await expect(connect()).rejects.toThrow(
      'its program ended with the exit code 1. Its last output:\nIt lacks its configuration',
    )
  })

  it('a program that fails at its start with an error before its usage has both in its reason', async () => {
    const script = 'echo "Error: no token" >&2; for n in $(seq 90); do echo "  --option-$n" >&2; done; exit 1'
    const failed = open({}, '', { command: '/bin/sh', args: ['-c', script], env: { PATH: '/bin:/usr/bin' } }).connect()
    await expect(failed).rejects.toThrow(
      /output:\nError: no token\n--option-1\n--option-2\n…\n--option-71\n.*--option-90$/s,
    )
  })

  it('a program that fails after it has logged the error as a message has that in its reason', async () => {
    const log = (level: string, data: string) =>
      JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level, data } })
    const script = `echo '${log('info', 'Starting')}'; echo '${log('error', 'Invalid account')}'; exit 1`
    const failed = open({}, '', { command: '/bin/sh', args: ['-c', script] }).connect()
    await expect(failed).rejects.toThrow(/exit code 1\. Its last output:\nInvalid account$/)
  })

  it('shows its error without the places of its stack', async () => {
    const client = await open().connect()
    const error = "ModuleNotFoundError: No module named 'protego'"
    expect((await client.call('raise', { error }, signal)).content).toContain(
      `exit code 1. Its last output:\nStarting\n+ Exception Group Traceback (most recent call last):\n| ${error}\n+----\n`,
    )
  })

  it('again and again is started with growing delays', async () => {
    const { connect } = open({ backoff: { first: 10, most: 60_000 } }, 'dies')
    const delays = () => logs.map((line) => JSON.parse(line).delay)
    for (let times = 0; times < 4; times++) await expect(connect()).rejects.toThrow('exit code 1')
    expect(delays()).toEqual([0, 10, 20, 40])
  })

  it('is not started before its delay is over, and runs are told when', async () => {
    const { connect } = open({ backoff: { first: 60_000, most: 60_000 } }, 'dies')
    for (let times = 0; times < 2; times++) await expect(connect()).rejects.toThrow('exit code 1')
    await expect(connect()).rejects.toThrow(
      /started again in \d+ s at the earliest, after a failure: its program ended/,
    )
    expect(logs).toHaveLength(2)
  })

  it('a program that fails without output at its start is stopped after a time limit', async () => {
    const reason = 'it takes too long to start, or speaks no MCP over its standard input and output'
    await expect(open({ startTimeout: 1000 }, 'mute').connect()).rejects.toThrow(reason)
  })

  it('a program whose first message has no end is stopped after a time limit, with its output', async () => {
    // A shell starts in milliseconds, so that it writes within the time limit on a busy machine, too.
    const shell = { command: '/bin/sh', args: ['-c', `printf '{"result":{}}'; exec cat`] }
    const reason = /speaks no MCP .*\. Its last output:\n\{"result":\{\}\}/
    await expect(open({ startTimeout: 5000 }, '', shell).connect()).rejects.toThrow(reason)
  })

  it.each([
    ['frames', 'its program writes messages as language servers do (Content-Length)'],
    ['puzzled', 'it answered with the error -32700'],
  ])('a program that fails because its messages are of another form is stopped at once (%s)', async (start, reason) => {
    await expect(open({}, start).connect()).rejects.toThrow(reason)
  })

  it('a program that fails by endless output at its start is stopped', async () => {
    await expect(open({}, 'pours').connect()).rejects.toThrow('its program sent a message of more than 8 MB')
  })

  it('a program that fails because it does not exist is reported without its path', async () => {
    const { connect } = open({}, 'well', { command: '/nowhere/at-all' })
    await expect(connect()).rejects.toThrow('its program cannot be started (ENOENT)')
  })

  it('leaves a run that was cancelled meanwhile with its reason', async () => {
    const reason = new Error('cancelled')
    await expect(open({}, 'mute').connect('space', AbortSignal.abort(reason))).rejects.toBe(reason)
  })
})

describe('no process is left', () => {
  it('no process is left after a stop, whether a program ignores signals or has started others', async () => {
    const { programs, connect } = open({}, 'stubborn')
    const client = await connect()
    const pids = [await read(client, 'pid'), await read(client, 'child')]
    expect(pids.map(exists)).toEqual([true, true])
    await programs.stop()
    for (const pid of pids) await ends(pid)
  })

  it('no process is left after a program has ended that had started others', async () => {
    const client = await open().connect()
    const child = await read(client, 'child')
    await client.call('crash', {}, signal)
    await ends(child)
  })

  it('no process is left if a run needs a program and too many run, those that no run uses end', async () => {
    const { connect } = open({ most: 1 })
    const first = await connect('a')
    const pid = await read(first, 'pid')
    await expect(connect('b')).rejects.toThrow('1 programs of MCP servers run already')
    await first.close()
    expect(await read(await connect('b'), 'echo', { text: 'b' })).toBe('b')
    await ends(pid)
  })
})
