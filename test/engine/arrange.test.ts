import type { LanguageModelV4Message, LanguageModelV4Prompt } from '@ai-sdk/provider'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { arrange, writtenBy } from '../../src/executions/engine/run/history.ts'

const COMPATIBLE = { provider: 'compatible.chat', modelId: 'm' }
const MODELS = [
  COMPATIBLE,
  { provider: 'anthropic.messages', modelId: 'm' },
  { provider: 'openai.responses', modelId: 'm' },
  { provider: 'google.generative-ai', modelId: 'm' },
]

const texts = fc.constantFrom('', ' \n', 'Hello', 'Well.')
const ids = fc.constantFrom('c', 'call_1', 'D681PevKs', 'toolu_01ABC', 'functions.x:0')
const message: fc.Arbitrary<LanguageModelV4Message> = fc.oneof(
  texts.map((text): LanguageModelV4Message => ({ role: 'user', content: [{ type: 'text', text }] })),
  fc
    .tuple(
      texts,
      fc.uniqueArray(ids, { maxLength: 3 }),
      fc.constantFrom('compatible/m', 'anthropic/m', 'compatible/other'),
    )
    .map(
      ([text, calls, model]): LanguageModelV4Message => ({
        role: 'assistant',
        ...writtenBy(model),
        content: [
          {
            type: 'reasoning',
            text: 'Hm.',
            providerOptions: { [model.split('/')[0]!]: { field: 'reasoning_content' } },
          },
          { type: 'text', text },
          ...calls.map((toolCallId) => ({ type: 'tool-call' as const, toolCallId, toolName: 'x', input: {} })),
        ],
      }),
    ),
  fc.array(ids, { maxLength: 3 }).map(
    (results): LanguageModelV4Message => ({
      role: 'tool',
      content: results.map((toolCallId) => ({
        type: 'tool-result' as const,
        toolCallId,
        toolName: 'x',
        output: { type: 'text', value: '' },
      })),
    }),
  ),
)
const prompts = fc
  .array(message, { maxLength: 12 })
  .map(
    (messages): LanguageModelV4Prompt => [
      { role: 'system', content: 'You are Ada.' },
      ...messages,
      { role: 'user', content: [{ type: 'text', text: 'And now?' }] },
    ],
  )

/** Message sequences that strict templates and providers refuse. */
function violations(prompt: LanguageModelV4Prompt): string[] {
  const found: string[] = []
  let last = 'system'
  let open: string[] = []
  for (const { role, content } of prompt.slice(1)) {
    if (role === 'system') found.push('a second system message')
    if (open.length && role !== 'tool') found.push('a call without its result')
    if (role === last) found.push(`${role} after ${role}`)
    if (role === 'user' && last === 'tool') found.push('user after tool')
    if (role === 'assistant' && last === 'system') found.push('an answer without a question')
    if (role === 'system') continue
    if (!content.length) found.push('an empty message')
    if (role !== 'tool') open = []
    const results: string[] = []
    for (const part of content) {
      if (part.type === 'text' && !part.text.trim()) found.push('a blank text')
      if (part.type === 'tool-call') open.push(part.toolCallId)
      if (part.type === 'tool-call' && !/^[a-zA-Z0-9]{9}$/.test(part.toolCallId)) found.push('an id that is refused')
      if (part.type === 'tool-result') results.push(part.toolCallId)
    }
    if (role === 'tool' && results.join() !== open.join()) found.push('results that are not those of the calls')
    if (role === 'tool') open = []
    last = role
  }
  return found
}

test.each(MODELS)('$provider accepts an arranged history of any turns, whose original stays unchanged', (model) => {
  fc.assert(
    fc.property(prompts, (prompt) => {
      const arranged = arrange(prompt, model)
      expect(violations(arranged)).toEqual([])
      const text = JSON.stringify(arranged)
      expect(text).not.toContain('"muster"')
      if (model !== COMPATIBLE) expect(violations(arrange(arranged, model))).toEqual([])
    }),
    { numRuns: 200 },
  )
})

test('MiniMax gets its thinking of the current turn back in the text, and other models do not', () => {
  const step = (id: string): LanguageModelV4Prompt => [
    {
      role: 'assistant',
      content: [
        { type: 'reasoning', text: 'Hm.', providerOptions: { compatible: { field: 'content' } } },
        { type: 'tool-call', toolCallId: id, toolName: 'search', input: {} },
      ],
    },
    {
      role: 'tool',
      content: [{ type: 'tool-result', toolCallId: id, toolName: 'search', output: { type: 'text', value: 'x' } }],
    },
  ]
  const user: LanguageModelV4Message = { role: 'user', content: [{ type: 'text', text: 'Go' }] }
  const prompt = [user, ...step('a'), { role: 'assistant' as const, content: [{ type: 'text' as const, text: 'Ok' }] }]
  const textsFor = (modelId: string) =>
    arrange([...prompt, user, ...step('b')], { provider: 'compatible.chat', modelId }).flatMap(({ role, content }) =>
      role === 'assistant' ? content.flatMap((part) => (part.type === 'text' ? part.text : [])) : [],
    )
  expect(textsFor('MiniMax-M2')).toEqual(['Ok', '<think>Hm.</think>\n\n'])
  expect(textsFor('m')).toEqual(['Ok'])
})

test('reasoning that came as parts of the content goes back as such, to its own model only', () => {
  const thinking = { type: 'thinking', thinking: [{ type: 'text', text: 'Hm.' }], closed: true }
  const answer: LanguageModelV4Message = {
    role: 'assistant',
    ...writtenBy('compatible/m'),
    content: [
      {
        type: 'reasoning',
        text: 'Hm.',
        providerOptions: { compatible: { field: 'content', content_parts: [thinking] } },
      },
      { type: 'text', text: 'Yes' },
    ],
  }
  const user: LanguageModelV4Message = { role: 'user', content: [{ type: 'text', text: 'Go' }] }
  const optionsFor = (modelId: string) =>
    arrange([user, answer, user], { provider: 'compatible.chat', modelId })[1]?.providerOptions
  expect(optionsFor('m')).toEqual({
    openaiCompatible: { content: [thinking, { type: 'text', text: 'Yes' }] },
  })
  expect(optionsFor('other')).toBeUndefined()
})

test('a signature beside reasoning goes back with it', () => {
  const mine = { field: 'reasoning_text', reasoning_opaque: 'S' }
  const [, answer] = arrange(
    [
      { role: 'user', content: [{ type: 'text', text: 'Go' }] },
      {
        role: 'assistant',
        ...writtenBy('compatible/m'),
        content: [
          { type: 'reasoning', text: 'Hm', providerOptions: { compatible: mine } },
          { type: 'text', text: 'Yes' },
        ],
      },
      { role: 'user', content: [{ type: 'text', text: 'On' }] },
    ],
    COMPATIBLE,
  )
  expect(answer?.providerOptions).toEqual({ openaiCompatible: { reasoning_text: 'Hm', reasoning_opaque: 'S' } })
})

test('a Kimi K2 model gets the ids of calls in its own form, also for calls of other models', () => {
  const step = (id: string, name: string): LanguageModelV4Prompt => [
    { role: 'assistant', content: [{ type: 'tool-call', toolCallId: id, toolName: name, input: {} }] },
    {
      role: 'tool',
      content: [{ type: 'tool-result', toolCallId: id, toolName: name, output: { type: 'text', value: 'x' } }],
    },
  ]
  const prompt: LanguageModelV4Prompt = [
    { role: 'user', content: [{ type: 'text', text: 'Go' }] },
    ...step('call_1', 'search'),
    ...step('functions.read:7', 'read'),
  ]
  const arranged = arrange(prompt, { provider: 'groq.chat', modelId: 'moonshotai/Kimi-K2-Instruct' })
  const ids = arranged.flatMap(({ content }) =>
    typeof content === 'string' ? [] : content.flatMap((part) => ('toolCallId' in part ? part.toolCallId : [])),
  )
  expect(ids).toEqual(['functions.search:0', 'functions.search:0', 'functions.read:1', 'functions.read:1'])
})

test('chat completions get images of tool results in a user turn after a neutral message', () => {
  const picture = { type: 'file' as const, mediaType: 'image/png', data: { type: 'data' as const, data: 'AAAA' } }
  const prompt: LanguageModelV4Prompt = [
    { role: 'user', content: [{ type: 'text', text: 'Look' }] },
    { role: 'assistant', content: [{ type: 'tool-call', toolCallId: 'a', toolName: 'see', input: {} }] },
    {
      role: 'tool',
      content: [
        {
          type: 'tool-result',
          toolCallId: 'a',
          toolName: 'see',
          output: { type: 'content', value: [{ type: 'text', text: 'Here' }, picture] },
        },
      ],
    },
  ]
  const [, , tool, bridge, user] = arrange(prompt, COMPATIBLE)
  expect(tool?.content).toMatchObject([{ output: { type: 'text', value: 'Here' } }])
  expect(bridge).toMatchObject({ role: 'assistant', content: [{ text: '[The pictures of these results follow]' }] })
  expect(user).toMatchObject({ role: 'user', content: [{ type: 'text' }, picture] })
  expect(arrange(prompt, MODELS[1]!)).toHaveLength(3)
  expect(arrange(prompt, MODELS[1]!, true).slice(2)).toEqual([tool, bridge, user])
})

test("a call keeps its provider's id, which a second call does not share", () => {
  const turn = (text: string): LanguageModelV4Prompt => [
    { role: 'user', content: [{ type: 'text', text }] },
    {
      role: 'assistant',
      content: [
        {
          type: 'tool-call',
          toolCallId: 'call_0',
          toolName: 'see',
          input: {},
          providerOptions: { openai: { itemId: `fc_${text}` } },
        },
      ],
    },
  ]
  const arranged = arrange([...turn('a'), ...turn('b')], { provider: 'openai.responses', modelId: 'm' })
  const ids = arranged.flatMap(({ content }) =>
    typeof content === 'string' ? [] : content.flatMap((part) => ('toolCallId' in part ? part.toolCallId : [])),
  )
  const [first, result, second, other] = ids
  expect([first, result, second]).toEqual(['call_0', 'call_0', other])
  expect(second).not.toBe('call_0')
})

test('reasoning of another model is sent to no model', () => {
  const prompt: LanguageModelV4Prompt = [
    { role: 'user', content: [{ type: 'text', text: 'Hello' }] },
    {
      role: 'assistant',
      ...writtenBy('compatible/other'),
      content: [
        { type: 'reasoning', text: 'Secret.', providerOptions: { compatible: { field: 'reasoning_content' } } },
        { type: 'text', text: 'Hi.' },
      ],
    },
    { role: 'user', content: [{ type: 'text', text: 'And now?' }] },
  ]
  for (const model of MODELS) expect(JSON.stringify(arrange(prompt, model))).not.toContain('Secret')
  expect(JSON.stringify(arrange(prompt, { ...COMPATIBLE, modelId: 'other' }))).toContain('Secret')
})
