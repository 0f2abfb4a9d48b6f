import { expect, it } from 'vitest'
import { ignoredIn } from '../../src/executions/engine/models/call-settings.ts'
import { classifyModelError } from '../../src/executions/engine/models/model-errors.ts'
import { createModels } from '../../src/executions/engine/models/models.ts'
import { composeRequest } from '../../src/executions/engine/run/compose-request.ts'
import type { Tool } from '../../src/executions/engine/run/tools.ts'
import type { ModelSettings } from '../../src/lib/model-settings.ts'
import { readSettings } from '../../src/settings.ts'
import { startByteServer } from '../support/byte-server.ts'
import { use } from '../support/use.ts'

const server = await use(startByteServer())
const models = createModels(
  readSettings({
    ANTHROPIC_API_KEY: 'a',
    OPENAI_API_KEY: 'o',
    GOOGLE_GENERATIVE_AI_API_KEY: 'g',
    ANTHROPIC_BASE_URL: server.origin,
    OPENAI_RESPONSES_BASE_URL: `${server.origin}/v1`,
    OPENAI_BASE_URL: `${server.origin}/v1`,
    GOOGLE_BASE_URL: server.origin,
  }),
)

const tools = [{ name: 'echo', description: '', inputSchema: { type: 'object', properties: {} } }] as unknown as Tool[]
const prompt = [{ role: 'user' as const, content: [{ type: 'text' as const, text: 'Hello' }] }]

const data = (value: object) => `data: ${JSON.stringify(value)}\n\n`
/** Whole answers, after which the warnings of a package are known. */
const ANSWERS: Readonly<Record<string, string>> = {
  anthropic: JSON.stringify({ type: 'message', role: 'assistant', content: 'Hi', stop_reason: 'end_turn' }),
  openai: data({ type: 'response.completed', response: { output: [] } }),
  google: data({ candidates: [{ content: { parts: [{ text: 'Hi' }] }, finishReason: 'STOP' }] }),
  compatible: data({ choices: [{ delta: { content: 'Hi' }, finish_reason: 'stop' }] }),
}

/** Asks a model with settings. Returns the body of the request, and the settings that it is warned about. */
async function ask(name: string, settings: ModelSettings) {
  const { model } = await models.resolve(name, 'organization-1')
  const ignored: string[] = []
  const { request } = composeRequest(
    {
      model,
      agentName: '',
      settings,
      output: null,
      demandedTool: null,
      changes: new Set(),
      ownFrom: 0,
      maxSize: Number.POSITIVE_INFINITY,
      ignored: (setting) => void ignored.push(setting),
    },
    { prompt, tools, question: 0, step: 1 },
  )
  server.script(ANSWERS[name.split('/')[0] ?? ''] ?? '')
  const { stream } = await model.doStream(request)
  for await (const parts of stream) {
    for (const part of parts) if (part.type === 'stream-start') ignored.push(...ignoredIn(part.warnings, settings))
  }
  return { body: server.requests.at(-1)!.text, ignored }
}

const WARNED = null
type Row = [ModelSettings, anthropic: string | null, openai: string | null, google: string | null, compatible: string]
const MODELS = ['anthropic/claude-haiku-4-5', 'openai/gpt-4o', 'google/gemini-2.5-flash', 'compatible/x'] as const

it.each<Row>([
  [{ temperature: 0.3 }, '"temperature":0.3', '"temperature":0.3', '"temperature":0.3', '"temperature":0.3'],
  [{ topP: 0.4 }, '"top_p":0.4', '"top_p":0.4', '"topP":0.4', '"top_p":0.4'],
  [{ maxOutputTokens: 77 }, '_tokens":77', '_tokens":77', '"maxOutputTokens":77', '_tokens":77'],
  [{ stopSequences: ['Z'] }, '"stop_sequences":["Z"]', WARNED, '"stopSequences":["Z"]', '"stop":["Z"]'],
  [{ seed: 7 }, WARNED, WARNED, '"seed":7', '"seed":7'],
  [{ reasoningEffort: 'none' }, '"disabled"', '"effort":"none"', '"thinkingBudget":0', '"reasoning_effort":"none"'],
  [{ reasoningEffort: 'high' }, '"enabled"', '"effort":"high"', '"thinkingBudget":', '"reasoning_effort":"high"'],
  [{ toolChoice: 'required' }, '{"type":"any"}', '"required"', '"ANY"', '"required"'],
  [{ toolChoice: 'none' }, '{"type":"none"}', '"tool_choice":"none"', '"NONE"', '"tool_choice":"none"'],
  [{ parallelToolCalls: false }, 'parallel_tool_use":true', '_calls":false', WARNED, '_calls":false'],
])('each provider is sent the setting %j, or there is a warning', async (settings, ...expected) => {
  const [name = ''] = Object.keys(settings)
  for (const [index, model] of MODELS.entries()) {
    const { body, ignored } = await ask(model, settings)
    const field = expected[index] ?? null
    expect(ignored, model).toEqual(field === WARNED ? [name] : [])
    if (field !== WARNED) expect(body, model).toContain(field)
  }
})

it('a package is sent the options that it knows, and there is a warning about each other one', async () => {
  const providerOptions = {
    anthropic: { cacheControl: { type: 'ephemeral' }, thinking: { type: 'enabled', budget_tokens: 2000 }, top_k: 3 },
    openai: { textVerbosity: 'low', reasoning: { effort: 'low' }, serviceTier: 'flex' },
    google: { labels: { a: 'b' }, safety_settings: [] },
    compatible: { top_k: 3 },
  }
  const left = [['thinking.budget_tokens', 'top_k'], ['serviceTier', 'reasoning'], ['safety_settings'], []]
  for (const [index, model] of MODELS.entries()) {
    const { ignored } = await ask(model, { providerOptions })
    const [provider] = model.split('/')
    expect(ignored).toEqual(left[index]!.map((name) => `providerOptions.${provider}.${name}`))
  }
})

it('an effort in the options of OpenAI reaches a model of another name', async () => {
  const { body, ignored } = await ask('openai/grok-x', { providerOptions: { openai: { reasoningEffort: 'xhigh' } } })
  expect([JSON.parse(body).reasoning.effort, ignored]).toEqual(['xhigh', []])
})

it('an option with a wrong value fails with its name and the values that it may have', async () => {
  const error = await ask('openai/gpt-x', { providerOptions: { openai: { textVerbosity: 'huge' } } }).catch((e) => e)
  expect(classifyModelError(error).detail).toMatch(/^invalid openai provider options: textVerbosity: .*low.*medium/)
})
