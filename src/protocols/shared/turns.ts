import type { GivenTurn } from '../../executions/engine/queue/client-history.ts'
import { clean } from '../../executions/engine/run/inputs.ts'
import type { CallRecord } from '../../executions/engine/run/steps.ts'
import { asText, type Fields, isObject } from '../../lib/unknown.ts'
import { type GivenFile, NO_TEXT } from './attachments.ts'
import { withoutThoughts } from './history.ts'

/** The result of a tool that the client has called. */
export type ClientResult = { id: string; content: string; isError: boolean }

/** A turn that a client gives as history, with the files of its message. */
export type ClientTurn = GivenTurn & { files: readonly GivenFile[] }

/** The content of a client's list of messages. */
export type ClientConversation = {
  /** Its system, developer and instructions texts. */
  instructions: string | undefined
  history: ClientTurn[]
  /** The message to answer. Null if the list ends with results of tools, or with an answer. */
  question: string | null
  /** The files of that message, and of those right before it that wait for the same answer. */
  files: readonly GivenFile[]
  /** The results at the end of the list. */
  results: ClientResult[]
  /** All results of the list. */
  allResults: ClientResult[]
}

/**
 * Parses the arguments of a call in a client's history as an object. Arguments that are cut off, nested too deep
 * or no object stay a text.
 */
export function readArguments(given: unknown): Fields {
  // Some clients send the object itself.
  if (isObject(given)) return given
  const text = asText(given)
  try {
    const value = clean(JSON.parse(text || '{}'))
    return isObject(value) ? value : { text }
  } catch {
    return { text }
  }
}

/**
 * Collects calls by keys, and finds the first one of a key without a result. A search among all calls for each result
 * would stop the process for seconds at a long conversation.
 */
export function createUnanswered<Call extends { result: string | null }>() {
  const lines = new Map<string, { calls: Call[]; answered: number }>()
  return {
    add(key: string, call: Call): void {
      const line = lines.get(key)
      if (line) line.calls.push(call)
      else lines.set(key, { calls: [call], answered: 0 })
    },
    forget: (key: string): boolean => lines.delete(key),
    last: (key: string): Call | undefined => lines.get(key)?.calls.at(-1),
    first(key: string): Call | undefined {
      const line = lines.get(key)
      if (!line) return undefined
      for (; line.answered < line.calls.length; line.answered++) {
        const call = line.calls[line.answered]
        if (call?.result === null) return call
      }
      return undefined
    },
  }
}

/** Reads the messages of a client, one after the other, as turns. */
export function createTurns() {
  const instructions: string[] = []
  const turns: (ClientTurn & { answer: string | null; toolCalls: CallRecord[] })[] = []
  /** The calls of each id in its last turn, because some servers of models use their ids of calls again. */
  const calls = createUnanswered<CallRecord>()
  const turnOf = new Map<string, object>()
  let results: ClientResult[] = []
  const allResults: ClientResult[] = []
  let isAsked = false
  let isInstructed = false
  let files: readonly GivenFile[] = []

  function current() {
    const last = turns.at(-1) ?? { message: null, answer: null, toolCalls: [], files: [] }
    if (!turns.length) turns.push(last)
    return last
  }

  /** Starts another kind of message than results. */
  function turn(asked: boolean): void {
    results = []
    isAsked = asked
    isInstructed = false
  }

  function ask(text: string, given: readonly GivenFile[] = []): void {
    const message = text.trim() === '' && given.length ? NO_TEXT : text
    turns.push({ message, answer: null, toolCalls: [], files: given })
    // Some clients send a picture as a message of its own before the question about it.
    files = isAsked ? [...files, ...given] : given
    turn(true)
  }

  return {
    instruct(text: string): void {
      if (!text.trim()) return
      instructions.push(text)
      isInstructed = true
    },
    ask,
    /** Makes a system text at the end of the list its question, unless a message or results wait for an answer. */
    askInstruction(): void {
      if (isInstructed && !isAsked && !results.length) ask(instructions.pop() ?? '')
    },
    answer(given: string): void {
      const text = withoutThoughts(given)
      const last = current()
      if (text) last.answer = last.answer ? `${last.answer}\n\n${text}` : text
      turn(false)
    },
    call(id: string, name: string, input: unknown): void {
      const last = current()
      const call = { id, name, input, result: null, isError: false }
      last.toolCalls.push(call)
      if (turnOf.get(id) !== last) calls.forget(id)
      turnOf.set(id, last)
      calls.add(id, call)
      turn(false)
    },
    result(id: string, content: string, isError = false): void {
      const call = calls.first(id) ?? calls.last(id)
      if (call) Object.assign(call, { result: content, isError })
      results.push({ id, content, isError })
      allResults.push({ id, content, isError })
      isAsked = false
      isInstructed = false
    },
    finish(): ClientConversation {
      const last = isAsked ? turns.pop() : undefined
      return {
        instructions: instructions.length ? instructions.join('\n\n') : undefined,
        history: turns,
        question: last?.message ?? null,
        files: last ? files : [],
        results,
        allResults,
      }
    },
  }
}
