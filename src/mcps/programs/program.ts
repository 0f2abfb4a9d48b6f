import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { type JSONRPCMessage, serializeMessage, type Transport } from '@modelcontextprotocol/client'
import type { DeclaredProgram } from '../../lib/mcp-config.ts'
import { BadAnswer } from '../../lib/net/safe-fetch.ts'
import { raceTimeout } from '../../lib/race-abort.ts'
import type { Clean } from '../client/content.ts'
import { createMeter } from '../client/message-rate.ts'
import { counter } from '../client/message-size.ts'
import { MAX_MESSAGES, weigh } from '../client/transport.ts'
import { createTail } from './output-tail.ts'
import { failureIn, messagesOf } from './program-messages.ts'

const MEBIBYTE = 1024 * 1024

/** Maximum length of a line of output, which is one message (bytes). */
const MAX_LINE = 8 * MEBIBYTE
/** Maximum size of all output since the last request (bytes). */
const MAX_OUTPUT = 32 * MEBIBYTE
/** Maximum size of requests that the program has not read (bytes). */
const MAX_UNREAD = 16 * MEBIBYTE
/** Maximum length of the unfinished line that explains a failure (bytes). */
const MAX_REST = 2_000
/** Maximum wait for the rest of the output of an ended program (ms). */
const REST_TIMEOUT = 500

const LINE_FEED = 0x0a
const STOPPED = 'its program was stopped'
const TOO_LONG = `its program sent a message of more than ${MAX_LINE / MEBIBYTE} MB`
/** Maximum number of lines of a message that is indented for people, and length of its first line (bytes). */
const MAX_INDENTED = 10_000
const MAX_BRACE = 4
/** Header of a message in the framing of language servers. */
const FRAME = /^Content-Length: *\d+$/i
const FRAMED = 'its program writes messages as language servers do (Content-Length): each has to be one line instead'

export type ProgramTransport = Transport & {
  /** Whether the program has written a message. */
  readonly hasSpoken: boolean
  /** Returns why the program has ended, or null while it runs. Contains cleaned lines of its output. */
  ended(): string | null
  /** Resolves with that reason. */
  whenEnded: Promise<string>
  /** Ends the program and all that it has started at once. Returns why it has ended, which may have been before. */
  kill(reason: string): string
}

/** Process groups of running programs, which end with this process. */
const groups = new Set<number>()
process.on('exit', () => {
  for (const pid of groups) signalGroup(pid, 'SIGKILL')
})

/** Sends a signal to a program and all that it has started. On Windows, only to the program. */
function signalGroup(pid: number, signal: NodeJS.Signals): void {
  // The id of a program that has ended may belong to another one.
  if (!groups.has(pid)) return
  try {
    process.kill(process.platform === 'win32' ? pid : -pid, signal)
  } catch {
    // None of them is left.
  }
}

/**
 * Creates a transport over the standard streams of a program, which `start` starts. The SDK's own transport inherits
 * variables of this process's environment. It also signals the program alone, so that programs started by it, such as
 * those of `npx`, would stay. `grace`: time that the program has to end after its input has ended, and again after
 * SIGTERM (ms).
 */
export function createProgram(program: DeclaredProgram, clean: Clean, grace: number): ProgramTransport {
  let child: ChildProcessWithoutNullStreams | null = null
  let reason: string | null = null
  let cause: string | null = null
  let hasSpoken = false
  let output = 0
  let isTooMuch = createMeter(MAX_MESSAGES)
  const tail = createTail(clean)
  const exited = Promise.withResolvers<void>()
  const end = Promise.withResolvers<string>()

  /** Marks the transport as closed. Returns the reason of the first time. */
  function finish(why: string): string {
    if (reason !== null) return reason
    tail.add(lines.rest())
    const output = tail.read(!hasSpoken)
    reason = output ? `${cause ?? why}. Its last output:\n${output}` : (cause ?? why)
    end.resolve(reason)
    transport.onclose?.()
    return reason
  }

  function kill(why: string): string {
    // The SDK stops a program whose handshake fails, without a reason.
    if (cause === null || cause === STOPPED) cause = why
    if (child?.pid !== undefined) signalGroup(child.pid, 'SIGKILL')
    return finish(why)
  }

  /** Lines of an indented message so far, and their length (bytes). */
  let indented: Buffer[] = []
  let indentedLength = 0

  function onLine(given: Buffer): void {
    const line = joined(given)
    // A program that writes UTF-16 puts NUL between its characters.
    const text = line?.toString().replaceAll('\0', '').trim()
    if (!line || !text) return
    const found = toMessages(line, text)
    hasSpoken ||= found.length > 0
    // Many programs also print texts for people.
    if (!found.length) tail.add(`${text}\n`)
    for (const message of found) tail.add(failureIn(message))
    if (!hasSpoken && FRAME.test(text)) return void kill(FRAMED)
    const weight = found.reduce((sum, message) => sum + weigh(message), found.length ? 0 : 1)
    if (isTooMuch(weight)) kill('its program sent too many messages')
    else for (const message of found) transport.onmessage?.(message)
  }

  /** Returns a line, or the whole message whose last line it is; null for any other line of an indented message. */
  function joined(line: Buffer): Buffer | null {
    // Most messages are one line, which is not decoded twice.
    if (!indented.length && line.length > MAX_BRACE) return line
    const text = line.toString().trimEnd()
    if (!indented.length && text !== '{') return line
    indented.push(line)
    indentedLength += line.length
    if (indentedLength > MAX_LINE) kill(TOO_LONG)
    if (text !== '}' && (text === '{' || /^\s/.test(text)) && indented.length <= MAX_INDENTED) return null
    const whole = Buffer.concat(indented)
    indented = []
    indentedLength = 0
    return text === '}' ? whole : line
  }

  function toMessages(line: Buffer, text: string): JSONRPCMessage[] {
    try {
      counter()(line)
      return messagesOf(text)
    } catch (error) {
      if (error instanceof BadAnswer) kill('its program sent a message with too many values')
      return []
    }
  }

  /** Counts output, and ends the program if it is too much. Returns whether the program still runs. */
  function count(bytes: number): boolean {
    output += bytes
    if (output > MAX_OUTPUT) kill(`its program sent more than ${MAX_OUTPUT / MEBIBYTE} MB at once`)
    return reason === null
  }

  const lines = createLines(onLine, () => reason === null)

  function onOutput(chunk: Buffer): void {
    if (!count(chunk.length)) return
    if (lines.add(chunk) > MAX_LINE) kill(TOO_LONG)
  }

  function onError(text: string): void {
    if (count(text.length)) tail.add(text)
  }

  /** After the end of a program, all that it has started ends too. */
  async function onExit(pid: number, why: string): Promise<void> {
    signalGroup(pid, 'SIGKILL')
    groups.delete(pid)
    exited.resolve()
    await raceTimeout(new Promise((resolve) => child?.once('close', resolve)), REST_TIMEOUT)
    for (const stream of child?.stdio ?? []) stream?.destroy()
    finish(why)
  }

  const transport: ProgramTransport = {
    start() {
      const { command, args, env, cwd } = program
      const started = Promise.withResolvers<void>()
      // The folder of this service may have files such as `.env`, which programs read. The root has none of them.
      const running = spawn(command, args, {
        env,
        cwd: cwd ?? '/',
        stdio: 'pipe',
        detached: process.platform !== 'win32',
        windowsHide: true,
      })
      child = running
      const { pid } = running
      if (pid !== undefined) groups.add(pid)
      running.on('spawn', started.resolve)
      running.on('error', (error: NodeJS.ErrnoException) => {
        exited.resolve()
        finish(
          `its program cannot be started (${error.code ?? 'unknown error'}): the operator has to correct MCP_CONFIG`,
        )
        started.reject(error)
      })
      running.on('exit', (code, signal) => {
        const how = code === null ? `was ended by ${signal}` : `ended with the exit code ${code}`
        void onExit(pid as number, `its program ${how}`)
      })
      running.stdout.on('data', onOutput)
      running.stderr.setEncoding('utf8').on('data', onError)
      // A program that has ended reads no more. Its exit says why.
      for (const stream of running.stdio) stream?.on('error', () => {})
      return started.promise
    },

    async send(message) {
      if (!child || reason !== null) throw new Error('Not connected')
      if ('id' in message && 'method' in message) {
        output = 0
        isTooMuch = createMeter(MAX_MESSAGES)
      }
      child.stdin.write(serializeMessage(message))
      if (child.stdin.writableLength > MAX_UNREAD) kill('its program does not read its requests')
    },

    /** Ends the input of the program, then asks it to end, then ends it. */
    async close() {
      const pid = child?.pid
      if (!child || pid === undefined || child.exitCode !== null || child.signalCode !== null) return
      cause ??= STOPPED
      const ended = exited.promise.then(() => true)
      child.stdin.end()
      if (await raceTimeout(ended, grace)) return
      signalGroup(pid, 'SIGTERM')
      if (await raceTimeout(ended, grace)) return
      signalGroup(pid, 'SIGKILL')
      await exited.promise
    },

    get hasSpoken() {
      return hasSpoken
    },
    ended: () => reason,
    whenEnded: end.promise,
    kill,
  }
  return transport
}

/** Divides output into lines, and passes each to `onLine` while `isOpen` returns true. */
function createLines(onLine: (line: Buffer) => void, isOpen: () => boolean) {
  let unfinished: Buffer[] = []
  let length = 0
  return {
    /** Adds a piece of output. Returns the length of the unfinished line (bytes). */
    add(chunk: Buffer): number {
      let from = 0
      for (let at = chunk.indexOf(LINE_FEED); at >= 0; at = chunk.indexOf(LINE_FEED, from)) {
        const line = Buffer.concat([...unfinished, chunk.subarray(from, at)])
        unfinished = []
        length = 0
        from = at + 1
        onLine(line)
        if (!isOpen()) return 0
      }
      length += chunk.length - from
      unfinished.push(chunk.subarray(from))
      return length
    },
    /** Returns the beginning of the unfinished line. */
    rest: () => Buffer.concat(unfinished).subarray(0, MAX_REST).toString(),
  }
}
