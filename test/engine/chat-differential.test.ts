import { OpenAICompatibleChatLanguageModel } from '@ai-sdk/openai-compatible'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { unifiedReason } from '../../src/executions/engine/models/finish-reasons.ts'
import { chunk, DONE, data, partsOf, summarize, TOOLS } from './chat-bytes.ts'

// Compares our reader of chat completions with the AI SDK's over generated streams. A stream is a reply in some
// server's style. Both readers get the same bytes, and the generated reply is the truth.

type Summary = ReturnType<typeof summarize>

/** Reads bytes with the AI SDK's package; null if it fails. */
async function packaged(bytes: Uint8Array<ArrayBuffer>): Promise<Summary | null> {
  const fetch = async () => new Response(bytes, { headers: { 'content-type': 'text/event-stream' } })
  const config = { provider: 'compatible.chat', url: () => 'http://localhost', headers: {}, fetch }
  const model = new OpenAICompatibleChatLanguageModel('m', config)
  try {
    const { stream } = await model.doStream({ prompt: [{ role: 'user', content: [{ type: 'text', text: 'Hi' }] }] })
    const parts = await Array.fromAsync(stream)
    return parts.some(({ type }) => type === 'error') ? null : summarize(parts)
  } catch {
    return null
  }
}

const word = fc.stringMatching(/^[a-z ,.é🗺"\\{}\n]{1,12}$/u)
const input = fc.dictionary(
  fc.stringMatching(/^[a-z]{1,5}$/),
  fc.oneof(word, fc.integer(), fc.boolean(), fc.constant(null)),
  { maxKeys: 4 },
)
const count = fc.integer({ min: 1, max: 9999 })

/** The content of a generated reply. */
const replies = fc.record({
  reasoning: fc.array(word, { maxLength: 3 }),
  text: fc.array(word, { maxLength: 5 }),
  tools: fc.array(
    fc.record({ name: fc.constantFrom(...TOOLS), input, places: fc.array(fc.nat(50), { maxLength: 3 }) }),
    { maxLength: 3 },
  ),
  reason: fc.constantFrom('stop', 'length', 'content_filter', 'tool_calls', 'function_call'),
  usage: fc.option(fc.record({ prompt_tokens: count, completion_tokens: count })),
})
type Reply = typeof replies extends fc.Arbitrary<infer One> ? One : never

/** The ways in which servers write each part of a reply; the first is that of the specification. */
const WAYS = {
  /** The keys under which calls are streamed in pieces. */
  calls: [
    'as specified',
    'one after the other',
    'indexes as texts',
    'one index for all calls',
    'no indexes',
    'neither ids nor indexes',
    'the name on every piece',
    'a new id on every piece',
    'ids and names that are empty texts on later pieces',
    'calls in a message',
  ],
  input: ['as specified', 'an object', 'JSON in a JSON text', 'an empty object first', 'the whole input once more'],
  text: ['as specified', 'a list of parts', 'a message that grows'],
  reasoning: ['as specified', 'the field reasoning', 'the field thinking', 'a tag in the text', 'a part of the text'],
  usage: ['as specified', 'in x_groq', 'in the choice', 'as texts', 'zeros behind it', 'no choices beside it'],
  reason: ['as specified', "another provider's word", 'missing before [DONE]'],
  frame: [
    'as specified',
    'chunks that say nothing',
    'choices that are null',
    'comments',
    'empty data',
    'lines that end with CR',
    'no space behind data:',
    'a byte order mark',
    'one event over several lines',
    'no [DONE]',
    'rubbish behind the finish reason',
    'an error behind the finish reason',
    'a last event without its end',
    'lines of JSON without data:',
  ],
} as const
type Ways = { [Part in keyof typeof WAYS]: (typeof WAYS)[Part][number] }
type Part = keyof Ways
const PARTS = Object.keys(WAYS) as Part[]
const SPECIFIED = Object.fromEntries(PARTS.map((part) => [part, 'as specified'])) as Ways

/** Deviations that a reader of the specification alone also understands, so that they explain no difference. */
const SAME: ReadonlySet<string> = new Set([
  'one after the other',
  'one index for all calls',
  'no indexes',
  'neither ids nor indexes',
  'the name on every piece',
  'a new id on every piece',
  'ids and names that are empty texts on later pieces',
  'a list of parts',
  'a part of the text',
  'the field reasoning',
  'comments',
  'lines that end with CR',
  'no space behind data:',
  'a byte order mark',
  'one event over several lines',
  'no [DONE]',
])

/** The provider's names for values of the specification. */
const WORDS: Readonly<Record<string, string>> = {
  stop: 'end_turn',
  length: 'max_tokens',
  content_filter: 'SAFETY',
  tool_calls: 'tool_use',
  function_call: 'tool_call',
}

const json = JSON.stringify

function pieces(text: string, places: readonly number[]): string[] {
  const at = [...new Set(places.map((place) => place % (text.length + 1)))].sort((a, b) => a - b)
  return [0, ...at].map((begin, index) => text.slice(begin, at[index] ?? text.length)).filter(Boolean)
}

function callsOf({ tools }: Reply, ways: Ways): string[] {
  const all = tools.map(({ name, input, places }, index) => {
    const whole = json(input)
    const inputs: unknown[] = {
      'as specified': pieces(whole, places),
      'an object': [input],
      'JSON in a JSON text': pieces(json(whole), places),
      'an empty object first': ['{}', ...pieces(whole, places)],
      'the whole input once more': [...pieces(whole, places), whole],
    }[ways.input]
    const id = `call_${index}`
    return inputs.map((part, place) => {
      const args = { arguments: part }
      const first = place === 0
      const named = first ? { name, ...args } : args
      switch (ways.calls) {
        case 'indexes as texts':
          return { index: `${index}`, ...(first && { id }), function: named }
        case 'one index for all calls':
          return { index: 0, ...(first && { id }), function: named }
        case 'no indexes':
          return { ...(first && { id }), function: named }
        case 'neither ids nor indexes':
          return { function: named }
        case 'the name on every piece':
          return { index, id, function: { name, ...args } }
        case 'a new id on every piece':
          return { index, id: `${id}_${place}`, function: named }
        case 'ids and names that are empty texts on later pieces':
          return { index, id: first ? id : '', function: { name: first ? name : '', ...args } }
        default:
          return { index, ...(first && { id, type: 'function' }), function: named }
      }
    })
  })
  if (ways.calls === 'calls in a message') {
    return all.map((some) => data({ choices: [{ index: 0, message: { tool_calls: some } }] }))
  }
  const isInterleaved = ways.calls === 'as specified' && ways.input === 'as specified'
  const longest = Math.max(0, ...all.map(({ length }) => length))
  const inOrder = isInterleaved
    ? Array.from({ length: longest }, (_, place) => all.flatMap((some) => some.slice(place, place + 1))).flat()
    : all.flat()
  return inOrder.map((one) => chunk({ tool_calls: [one] }))
}

function textOf({ text }: Reply, way: Ways['text']): string[] {
  if (way === 'a message that grows') {
    return text.map((_, index) => data({ choices: [{ message: { content: text.slice(0, index + 1).join('') } }] }))
  }
  return text.map((content) =>
    chunk({ content: way === 'a list of parts' ? [{ type: 'text', text: content }] : content }),
  )
}

function reasoningOf({ reasoning }: Reply, way: Ways['reasoning']): string[] {
  switch (way) {
    case 'the field reasoning':
      return reasoning.map((piece) => chunk({ reasoning: piece }))
    case 'the field thinking':
      return reasoning.map((piece) => chunk({ thinking: piece }))
    case 'a part of the text':
      return reasoning.map((piece) =>
        chunk({ content: [{ type: 'thinking', thinking: [{ type: 'text', text: piece }] }] }),
      )
    case 'a tag in the text':
      return reasoning.length ? ['<thi', 'nk>', ...reasoning, '</think>\n\n'].map((content) => chunk({ content })) : []
    default:
      return reasoning.map((piece) => chunk({ reasoning_content: piece }))
  }
}

function endOf({ reason, usage }: Reply, ways: Ways): string[] {
  const word = ways.reason === "another provider's word" ? (WORDS[reason] ?? reason) : reason
  const finish = ways.reason === 'missing before [DONE]' ? null : word
  if (!usage) return [chunk({}, finish)]
  const texts = { prompt_tokens: `${usage.prompt_tokens}`, completion_tokens: `${usage.completion_tokens}.0` }
  const zeros = { prompt_tokens: 0, completion_tokens: 0 }
  switch (ways.usage) {
    case 'in x_groq':
      return [chunk({}, finish, { x_groq: { usage } })]
    case 'in the choice':
      return [data({ choices: [{ index: 0, delta: {}, finish_reason: finish, usage }] })]
    case 'as texts':
      return [chunk({}, finish, { usage: texts })]
    case 'zeros behind it':
      return [chunk({}, finish, { usage }), data({ choices: [], usage: zeros })]
    case 'no choices beside it':
      return [chunk({}, finish), data({ id: 'c', usage })]
    default:
      return [chunk({}, finish), data({ id: 'c', choices: [], usage })]
  }
}

function framed(events: string[], way: Ways['frame']): string {
  const between = (odd: string) => [odd, ...events.flatMap((event) => [event, odd]), DONE].join('')
  const all = [...events, DONE].join('')
  switch (way) {
    case 'chunks that say nothing':
      return between(`${data('{}')}${data('null')}${data({ id: 'c', object: 'chat.completion.chunk' })}`)
    case 'choices that are null':
      return between(data({ choices: null }))
    case 'comments':
      return between(': waiting\n\n')
    case 'empty data':
      return between('data:\n\n')
    case 'lines that end with CR':
      return all.replaceAll('\n', '\r')
    case 'no space behind data:':
      return all.replaceAll('data: ', 'data:')
    case 'a byte order mark':
      return `\ufeff${all}`
    case 'one event over several lines':
      return all.replace(/^data: \{/gm, 'data: {\ndata: ')
    case 'no [DONE]':
      return events.join('')
    case 'rubbish behind the finish reason':
      return [...events, data('{"cho'), DONE].join('')
    case 'an error behind the finish reason':
      return [...events, data({ error: { message: 'Too late' } }), DONE].join('')
    case 'a last event without its end':
      return events.join('').trimEnd()
    case 'lines of JSON without data:':
      return events.join('').replace(/^data: |\n(?=\n)/gm, '')
    default:
      return all
  }
}

/** Writes a reply as a server with these ways does. */
function write(reply: Reply, ways: Ways): Uint8Array<ArrayBuffer> {
  const events = [
    chunk({ role: 'assistant', content: '' }),
    ...reasoningOf(reply, ways.reasoning),
    ...textOf(reply, ways.text),
    ...callsOf(reply, ways),
    ...endOf(reply, ways),
  ]
  return new TextEncoder().encode(framed(events, ways.frame))
}

function truth({ reasoning, text, tools, reason, usage }: Reply, ways: Ways): Summary {
  const whole = text.join('')
  const isTagged = ways.reasoning === 'a tag in the text' && reasoning.length > 0
  return {
    text: isTagged ? whole.trimStart() : whole,
    reasoning: reasoning.join(''),
    calls: tools.map(({ name, input }) => ({ name, input: json(input) })),
    finish:
      ways.reason === 'missing before [DONE]'
        ? tools.length
          ? 'tool-calls'
          : whole
            ? 'stop'
            : 'error'
        : unifiedReason(reason),
    input: usage?.prompt_tokens,
    output: usage?.completion_tokens,
  }
}

/** Returns whether the written stream still contains the reply. */
const isPossible = ({ tools }: Reply, ways: Ways): boolean =>
  (ways.calls !== 'neither ids nor indexes' || new Set(tools.map(({ name }) => name)).size === tools.length) &&
  (ways.reason !== 'missing before [DONE]' || !/no \[DONE\]|behind the finish|without/.test(ways.frame)) &&
  (ways.calls !== 'calls in a message' || ways.text !== 'a message that grows')

/** Mostly ways of the specification, so that many streams have one or two deviations. */
const someWays: fc.Arbitrary<Ways> = fc.record(
  Object.fromEntries(
    PARTS.map((part) => [
      part,
      fc.oneof({ weight: 3, arbitrary: fc.constant('as specified') }, fc.constantFrom(...WAYS[part])),
    ]),
  ) as { [Name in Part]: fc.Arbitrary<Ways[Name]> },
)

const oddIn = (ways: Ways) =>
  PARTS.flatMap((part) => (ways[part] === 'as specified' || SAME.has(ways[part]) ? [] : `${part}: ${ways[part]}`))

/** A reply with everything, so that each way of writing appears. */
const FULL: Reply = {
  reasoning: ['Let me ', 'think.'],
  text: ['Both ', 'of them.'],
  tools: [
    { name: 'add', input: { x: 1, y: 'b' }, places: [4, 9] },
    { name: 'search', input: { query: 'weather "now"' }, places: [5] },
  ],
  reason: 'tool_calls',
  usage: { prompt_tokens: 12, completion_tokens: 34 },
}

describe('our reader of chat completions and that of the AI SDK', () => {
  it('agree on every stream of the specification, wherever the network cuts it', async () => {
    const plain = fc.constantFrom<Partial<Ways>>({}, ...[...SAME].map(waysOf))
    await fc.assert(
      fc.asyncProperty(replies, plain, fc.array(fc.nat(5_000), { maxLength: 6 }), async (reply, some, places) => {
        const ways = { ...SPECIFIED, ...some }
        fc.pre(isPossible(reply, ways))
        const bytes = write(reply, ways)
        const at = [...places.map((place) => place % bytes.length).sort((a, b) => a - b), bytes.length]
        const cut = at.map((end, index) => bytes.subarray(at[index - 1] ?? 0, end))
        expect(summarize(partsOf([bytes]))).toEqual(truth(reply, ways))
        expect(summarize(partsOf(cut))).toEqual(truth(reply, ways))
        expect(await packaged(bytes)).toEqual(truth(reply, ways))
      }),
      { numRuns: 150, seed: 32 },
    )
  })

  it('differ only for a named reason, and then ours reads the generated reply', async () => {
    await fc.assert(
      fc.asyncProperty(replies, someWays, async (reply, ways) => {
        fc.pre(isPossible(reply, ways))
        const bytes = write(reply, ways)
        const expected = truth(reply, ways)
        expect(summarize(partsOf([bytes]))).toEqual(expected)
        if (!oddIn(ways).length) expect(await packaged(bytes)).toEqual(expected)
      }),
      { numRuns: 500, seed: 32 },
    )
  })

  const reasons = PARTS.flatMap((part) => WAYS[part].flatMap((way) => oddIn({ ...SPECIFIED, [part]: way })[0] ?? []))
  it.each(reasons)('differ if a server writes %s', async (reason) => {
    const ways = { ...SPECIFIED, ...waysOf(reason.slice(reason.indexOf(': ') + 2)) }
    const bytes = write(FULL, ways)
    expect(summarize(partsOf([bytes]))).toEqual(truth(FULL, ways))
    expect(await packaged(bytes)).not.toEqual(truth(FULL, ways))
  })
})

function waysOf(way: string): Partial<Ways> {
  const part = PARTS.find((name) => (WAYS[name] as readonly string[]).includes(way))
  return part ? { [part]: way } : {}
}
