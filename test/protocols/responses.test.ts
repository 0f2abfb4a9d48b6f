import { createOpenResponses } from '@ai-sdk/open-responses'
import { createOpenAI } from '@ai-sdk/openai'
import { generateText, streamText } from 'ai'
import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { call, startToolLab } from '../engine/tool-lab.ts'
import { event } from '../support/model-replies.ts'
import { request } from '../support/rest.ts'
import type { Member } from '../support/server.ts'
import { use } from '../support/use.ts'
import { misfit, misfits } from './open-responses.ts'

const toolLab = await use(startToolLab())
const agent: string = (await toolLab.agent()).id

const server = () => toolLab.lab.server
const eve: Member = await server().member({ organization: 'Other' })
const model = () => toolLab.lab.model

const clientOf = (token = server().token) =>
  new OpenAI({ baseURL: `${server().url}/openai/v1`, apiKey: token, maxRetries: 0 })

const create = (fields: object = {}) =>
  clientOf().responses.create({
    model: agent,
    input: 'Hello',
    ...fields,
  } as OpenAI.Responses.ResponseCreateParamsNonStreaming)

type Event = OpenAI.Responses.ResponseStreamEvent

const eventsOf = async (stream: AsyncIterable<Event>): Promise<Event[]> => {
  const events = await Array.fromAsync(stream)
  expect(misfits(events)).toEqual([])
  return events
}

const asked = () =>
  model()
    .requests.at(-1)
    ?.body.messages.map(({ role, content }) => `${role}: ${content}`)

const status = (work: Promise<unknown>) =>
  work.then(
    () => 200,
    (error) => error.status,
  )

describe('a response', () => {
  it('has every key of the specification, and the items of the run', async () => {
    model().script(
      { tokens: ['<think>', 'Hm.', '</think>', 'Wait.'], toolCalls: [call('echo', { text: 'x' })] },
      { tokens: ['Good ', 'day.'], usage: { input: 17, output: 5 } },
    )
    const response = await create({ metadata: { a: 'b' }, temperature: 0.5, instructions: 'Be brief.' })
    expect(misfit(response)).toBeNull()
    expect(response).toMatchObject({
      status: 'completed',
      model: agent,
      metadata: { a: 'b' },
      temperature: 0.5,
      instructions: 'Be brief.',
      output_text: 'Wait.Good day.',
    })
    expect(response.output.map(({ type }) => type)).toEqual(['reasoning', 'message', 'muster:tool_call', 'message'])
    expect(asked()?.[0]).toMatch(/Be brief\.$/)
    const { output_text: _, ...again } = await clientOf().responses.retrieve(response.id)
    expect({ ...again, output_text: response.output_text }).toEqual(response)
  })

  it('is streamed as events of the specification, and again after any of them', async () => {
    model().script(
      { tokens: ['<think>', 'Hm.', '</think>', 'Wait.'], toolCalls: [call('echo', { text: 'x' })] },
      { tokens: ['Good ', 'day.'] },
    )
    const stream = await clientOf().responses.create({ model: agent, input: 'Hello', stream: true })
    const events = await eventsOf(stream)
    expect(events[0]?.type).toBe('response.created')
    const last = events.at(-1)
    expect(last).toMatchObject({ type: 'response.completed', response: { status: 'completed' } })
    const numbers = events.map((event) => event.sequence_number)
    expect(numbers).toEqual([...new Set(numbers)].sort((a, b) => a - b))
    const { id } = (last as OpenAI.Responses.ResponseCompletedEvent).response
    for (const position of [0, 7, events.length - 2]) {
      const after = { stream: true as const, starting_after: events[position]!.sequence_number }
      expect(await eventsOf(await clientOf().responses.retrieve(id, after))).toEqual(events.slice(position + 1))
    }
  })

  it.each(['', 'GuzzleHttp/7', 'Java-http-client/17.0.9', 'App/1 CFNetwork/1490.0.4 Darwin/23.2.0'])(
    'has only items of the specification for a typed library that sends the user agent "%s"',
    async (agentOfClient) => {
      const client = clientOf().withOptions({ defaultHeaders: { 'User-Agent': agentOfClient } })
      const calls = [call('echo', { text: 'x' }), call('echo', { text: 'y' })]
      model().script({ tokens: 'Wait.', toolCalls: calls }, { tokens: 'Good day.' })
      const stream = client.responses.stream({ model: agent, input: 'Hello' })
      const events = await eventsOf(stream)
      const response = await stream.finalResponse()
      expect(response.output.map(({ type }) => type)).toEqual(['message', 'message'])
      const indexes = events.flatMap((event) => ('output_index' in event ? event.output_index : []))
      expect([...new Set(indexes)]).toEqual([0, 1])
      const { output } = await client.responses.retrieve(response.id)
      expect(output.map(({ id }) => id)).toEqual(response.output.map(({ id }) => id))
      const [again] = await eventsOf(
        await client.responses.retrieve(response.id, { stream: true, starting_after: events.at(-2)!.sequence_number }),
      )
      expect(again).toEqual(events.at(-1))
    },
  )

  it('names a number of 32 bits in the error of a stream that ends with its token', async () => {
    const { token, tokenId } = await server().member({ organization: 'Default' })
    const asks = model().request(model().requests.length)
    model().script({ tokens: ['One '], end: 'hang' })
    const stream = await fetch(`${server().url}/openai/v1/responses`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ model: agent, input: 'Hello', stream: true }),
    })
    await asks
    await request(server(), 'DELETE', `/api/v1/keys/${tokenId}`, { token })
    const numbers = [...(await stream.text()).matchAll(/"sequence_number":(\d+)/g)].map(([, number]) => Number(number))
    expect(numbers.at(-1)).toBe(numbers.at(-2)! + 1)
  })

  it('is accumulated by the client to the same items', async () => {
    model().script({ tokens: ['Good ', 'day.'] })
    const final = await clientOf().responses.stream({ model: agent, input: 'Hello' }).finalResponse()
    expect(final.output_text).toBe('Good day.')
  })

  it('has an incomplete last message if the answer was cut off, and complete ones before it', async () => {
    const cut = event({ choices: [{ index: 0, delta: { content: 'd' }, finish_reason: 'length' }] })
    model().script(
      { tokens: ['Wait.'], toolCalls: [call('echo', { text: 'x' })] },
      { tokens: ['Good ', cut], end: 'cut' },
    )
    const events = await eventsOf(await clientOf().responses.create({ model: agent, input: 'Hello', stream: true }))
    const done = events.flatMap((one) => (one.type === 'response.output_item.done' ? one.item : []))
    expect(done).toMatchObject([{ status: 'completed' }, { status: 'completed' }, { status: 'incomplete' }])
    const { response } = events.at(-1) as OpenAI.Responses.ResponseIncompleteEvent
    expect(response).toMatchObject({ status: 'incomplete', output: done })
    expect(await clientOf().responses.retrieve(response.id)).toMatchObject({ output: done })
  })

  it('runs in the background, and can be cancelled and deleted', async () => {
    const gate = Promise.withResolvers<void>()
    model().script({ tokens: ['Slow', gate.promise] })
    const asked = model().requests.length
    const response = await create({ background: true })
    await model().request(asked)
    expect(misfit(response)).toBeNull()
    expect(['queued', 'in_progress']).toContain(response.status)
    expect(response.background).toBe(true)
    const cancelled = await clientOf().responses.cancel(response.id)
    gate.resolve()
    // Codex repeats a response that failed with a code that it does not know.
    expect(cancelled).toMatchObject({ status: 'cancelled', error: { code: 'invalid_prompt' } })
    expect((await clientOf().responses.cancel(response.id)).status).toBe('cancelled')
    await clientOf().responses.delete(response.id)
    expect(await status(clientOf().responses.retrieve(response.id))).toBe(404)
    expect(await status(create({ previous_response_id: response.id }))).toBe(404)
  })

  it('continues the previous response, in a branch if that is not the last one', async () => {
    model().script({ tokens: 'One.' }, { tokens: 'Two.' }, { tokens: 'Other.' })
    const first = await create({ input: 'First' })
    const second = await create({ input: 'Second', previous_response_id: first.id })
    expect(second.previous_response_id).toBe(first.id)
    expect(asked()?.slice(1)).toEqual(['user: First', 'assistant: One.', 'user: Second'])
    await create({ input: 'Else', previous_response_id: first.id })
    expect(asked()?.slice(1)).toEqual(['user: First', 'assistant: One.', 'user: Else'])
  })

  it('belongs to a conversation that the client names', async () => {
    const name = `conv_${crypto.randomUUID()}`
    model().script({ tokens: 'One.' }, { tokens: 'Two.' }, { tokens: 'Three.' })
    const first = await create({ input: 'First', conversation: name })
    await create({ input: 'Second', conversation: { id: name } })
    expect(asked()?.slice(1)).toEqual(['user: First', 'assistant: One.', 'user: Second'])
    // Clients tell it from the id of a response by its prefix.
    const id = first.conversation?.id
    expect(id).toMatch(/^conv_\w{31}$/)
    await create({ input: 'Third', conversation: id })
    expect(asked()?.slice(-1)).toEqual(['user: Third'])
    expect(asked()).toHaveLength(6)
  })

  it('a response of Codex belongs to its thread, and a repeated request joins its run', async () => {
    const options = { headers: { 'Thread-Id': crypto.randomUUID() } }
    const surroundings = { role: 'user' as const, content: '<environment_context>' }
    const ask = (content: string, before: OpenAI.Responses.ResponseInput = []) =>
      clientOf().responses.create(
        { model: agent, input: [surroundings, ...before, { role: 'user', content }] },
        options,
      )
    const gate = Promise.withResolvers<void>()
    model().script({ tokens: ['One', gate.promise, '.'] }, { tokens: 'Two.' })
    const arrival = model().request(model().requests.length)
    const lost = ask('First')
    await arrival
    const again = ask('First')
    gate.resolve()
    const [one, same] = await Promise.all([lost, again])
    expect([same.id, same.output_text]).toEqual([one.id, 'One.'])
    const two = await ask('Second', [
      { role: 'user', content: 'First' },
      { role: 'assistant', content: 'One.' },
    ])
    expect([two.output_text, two.conversation]).toEqual(['Two.', one.conversation])
    const { chats } = (await request(server(), 'GET', '/api/v1/chats?limit=1')).body
    expect(chats[0].title).toBe('First')
  })

  it('a response of a run that a person cancels meanwhile is a 409, which says so', async () => {
    const gate = Promise.withResolvers<void>()
    model().script({ tokens: ['Slow', gate.promise] })
    const asked = model().requests.length
    const failed = create().catch((error) => error)
    await model().request(asked)
    const { executions } = (await request(server(), 'GET', '/api/v1/executions?limit=1')).body
    await request(server(), 'POST', `/api/v1/executions/${executions[0].id}/cancel`)
    gate.resolve()
    expect(await failed).toMatchObject({ status: 409, message: expect.stringContaining('Execution was cancelled.') })
  })

  it('lists the message that it answers', async () => {
    const response = await create({ input: [{ role: 'user', content: [{ type: 'input_text', text: 'Hi there' }] }] })
    const { data } = await clientOf().responses.inputItems.list(response.id)
    expect(data).toMatchObject([{ type: 'message', role: 'user', content: [{ type: 'input_text', text: 'Hi there' }] }])
  })

  it('waits for the results of function tools, which continue the same run', async () => {
    // Codex sends tools of other types beside its functions, and pictures in results.
    const parameters = { type: 'object', properties: {} }
    const tools = [{ type: 'web_search' }, { type: 'function', name: 'weather', parameters, strict: false }]
    model().script(
      {
        tokens: 'Let me see.',
        toolCalls: [call('client__weather', { city: 'Rome' })],
        usage: { input: 10, output: 4 },
      },
      { tokens: 'Warm.', usage: { input: 20, output: 1 } },
    )
    const first = await create({ tools })
    expect(misfit(first)).toBeNull()
    expect(first.tools).toMatchObject([{ type: 'function', name: 'weather' }])
    const made = first.output.find((item) => item.type === 'function_call')
    expect(made).toMatchObject({ name: 'weather', arguments: '{"city":"Rome"}' })
    const output = [
      { type: 'input_text', text: '21 degrees' },
      { type: 'input_image', image_url: 'data:image/png;base64,iVBORw==' },
    ]
    const input = [{ type: 'function_call_output', call_id: made!.call_id, output }]
    const second = await create({ input, previous_response_id: first.id, tools })
    expect(misfit(second)).toBeNull()
    expect(second.output_text).toBe('Warm.')
    expect(second.id.startsWith(first.id)).toBe(true)
    expect(second.usage).toMatchObject({ input_tokens: 20, output_tokens: 1 })
    const again = await clientOf().responses.retrieve(first.id)
    expect(again.output_text).toBe('Let me see.')
    expect(again.usage).toMatchObject({ input_tokens: 10, output_tokens: 4 })
    const { data } = await clientOf().responses.inputItems.list(second.id)
    expect(data).toMatchObject([
      { type: 'function_call_output', output: '21 degrees\n[file, image/png, 4 bytes: not shown]' },
    ])
  })

  it('calls custom tools with a text, and takes their results', async () => {
    const format = { type: 'grammar', syntax: 'lark', definition: 'start: PATCH' } as const
    const tools = [{ type: 'custom' as const, name: 'apply_patch', description: 'Edits files', format }]
    // Some models name the text as they like.
    const calls = ['input', 'patch'].map((key) => ({ ...call('client__apply_patch', { [key]: '*** A' }), id: key }))
    model().script({ toolCalls: calls }, { tokens: 'Patched.' })
    const ask = { role: 'user' as const, content: 'Patch it' }
    const choice = { type: 'custom' as const, name: 'apply_patch' }
    const body = { model: agent, input: [ask], tools, tool_choice: choice, stream: true as const }
    // Open Responses has no custom tools.
    const events = await Array.fromAsync(await clientOf().responses.create(body))
    expect(JSON.stringify(model().requests.at(-1)?.body.tools)).toContain('start: PATCH')
    expect(events.filter(({ type }) => type === 'response.custom_tool_call_input.done')).toMatchObject([
      { input: '*** A' },
      { input: '*** A' },
    ])
    const { response } = events.at(-1) as OpenAI.Responses.ResponseCompletedEvent
    expect(response).toMatchObject({ tools, tool_choice: choice })
    const made = response.output.filter((item) => item.type === 'custom_tool_call')
    expect(made).toMatchObject([
      { name: 'apply_patch', input: '*** A' },
      { name: 'apply_patch', input: '*** A' },
    ])
    const results = made.map(({ call_id }) => ({ type: 'custom_tool_call_output' as const, call_id, output: 'Done' }))
    const second = await create({ input: [ask, ...made, ...results], tools })
    expect(second.output_text).toBe('Patched.')
    const { data } = await clientOf().responses.inputItems.list(second.id)
    expect(data.map(({ type }) => type)).toEqual(results.map(({ type }) => type))
    await create({ input: [ask, ...made, ...results, { role: 'user', content: 'Sure?' }], tools })
    expect(JSON.stringify(model().requests.at(-1)?.body.messages)).toContain('*** A')
    const unknown = create({ tools, tool_choice: { type: 'function', name: 'apply_patch' } })
    await expect(unknown).rejects.toMatchObject({ status: 400, message: expect.stringContaining('tool_choice') })
  })

  it('offers the functions in the groups of Codex, and names the group in their calls', async () => {
    const weather = { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} }, strict: false }
    const groups = [
      { type: 'namespace', name: 'mcp__home', description: 'Home', tools: [weather, { type: 'custom', name: 'x' }] },
      { type: 'namespace', name: 'functions', description: '', tools: [weather] },
    ] as OpenAI.Responses.Tool[]
    model().script(
      { toolCalls: [call('client__mcp__home__weather', {}), { ...call('client__weather', {}), id: 'other' }] },
      { tokens: 'Warm.' },
    )
    const ask = { type: 'message', role: 'user', content: 'Weather?' } as const
    const added = { type: 'additional_tools', role: 'developer', tools: groups } as OpenAI.Responses.ResponseInputItem
    const first = await create({ input: [added, ask] })
    const made = first.output.filter((item) => item.type === 'function_call')
    expect(made.map(({ name, namespace }) => [name, namespace])).toEqual([
      ['weather', 'mcp__home'],
      ['weather', undefined],
    ])
    const results = made.map(({ call_id }) => ({ type: 'function_call_output' as const, call_id, output: '21' }))
    expect((await create({ input: [ask, ...made, ...results], tools: groups })).output_text).toBe('Warm.')
    model().script({ tokens: 'As I said.' })
    await create({ input: [ask, ...made, ...results, { role: 'user', content: 'Sure?' }], tools: groups })
    expect(JSON.stringify(model().requests.at(-1)?.body.messages)).toContain('mcp__home__weather')
  })

  it.each([true, false])(
    'answers a message while the run waits for its client (with its result: %s)',
    async (isGiven) => {
      const tools = [
        { type: 'function', name: 'weather', parameters: { type: 'object', properties: {} }, strict: false },
      ]
      model().script({ toolCalls: [call('client__weather', {})] }, { tokens: 'Warm.' })
      const first = await create({ tools })
      const made = first.output.find((item) => item.type === 'function_call')
      const result = { type: 'function_call_output', call_id: made!.call_id, output: '21 degrees' }
      const input = [...(isGiven ? [result] : []), { role: 'user', content: 'Here is a picture of it' }]
      const second = await create({ input, previous_response_id: first.id, tools })
      expect(second.output_text).toBe('Warm.')
      const answer = isGiven ? '21 degrees' : 'The run ended before the tool answered'
      expect(asked()).toContain(`tool: ${answer}`)
    },
  )

  it('says in the reasoning of a streamed chat completion that a person must approve', async () => {
    const { id } = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    model().script({ toolCalls: [call('echo', { text: 'x' })] }, { tokens: 'Done.' })
    const messages = [{ role: 'user' as const, content: 'Hi' }]
    const stream = await clientOf().chat.completions.create({ model: id, messages, stream: true })
    let [reasoning, answer] = ['', '']
    for await (const { choices } of stream) {
      const delta = choices[0]?.delta as { content?: string; reasoning_content?: string }
      answer += delta.content ?? ''
      if (delta.reasoning_content === undefined) continue
      reasoning += delta.reasoning_content
      const { approvals } = (await request(server(), 'GET', '/api/v1/approvals?status=pending')).body
      await request(server(), 'POST', `/api/v1/approvals/${approvals[0].id}/approve`, { body: {} })
    }
    expect(reasoning).toMatch(/^The run waits until a person approves .+\/app\/approvals\.\n$/)
    expect(answer).toBe('Done.')
  })

  it('says in the reasoning of its stream that a person must approve', async () => {
    const { id } = await toolLab.agent({}, [{ tool: 'echo', mode: 'ask' }])
    const calls = ['x', 'y'].map((text) => ({ ...call('echo', { text }), id: text }))
    model().script({ toolCalls: calls }, { tokens: 'Done.' })
    const body = { model: id, input: 'Hi', stream: true } as const
    const events: Event[] = []
    for await (const event of await clientOf().responses.create(body)) {
      events.push(event)
      if (event.type !== 'response.output_item.done' || !event.item.id?.startsWith('apr_')) continue
      const path = `/api/v1/approvals/${event.item.id.slice(4)}/approve`
      await request(server(), 'POST', path, { body: {} })
    }
    expect(misfits(events)).toEqual([])
    const notes = events.flatMap((event) => (event.type === 'response.reasoning_summary_text.done' ? event.text : []))
    expect(notes).toEqual([expect.stringMatching(/^The run waits until a person approves .+\/app\/approvals\.\n$/)])
    const { response } = events.at(-1) as OpenAI.Responses.ResponseCompletedEvent
    expect(response.output.map(({ type }) => type as string)).not.toContain('reasoning')
    expect((await clientOf().responses.retrieve(response.id)).output).toEqual(response.output)
  })

  it('answers in JSON that fits a schema', async () => {
    model().script({ tokens: '{"city":"Rome"}' })
    const schema = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
    const response = await create({ text: { format: { type: 'json_schema', name: 'place', schema } } })
    expect(misfit(response)).toBeNull()
    expect(JSON.parse(response.output_text)).toEqual({ city: 'Rome' })
  })

  it('is found only by callers who can read the run', async () => {
    const response = await create()
    const other = clientOf(eve.token)
    expect(await status(other.responses.retrieve(response.id))).toBe(404)
    expect(await status(other.responses.cancel(response.id))).toBe(404)
    expect(await status(other.responses.delete(response.id))).toBe(404)
    expect(await status(other.responses.inputItems.list(response.id))).toBe(404)
    const unknown = await create({ previous_response_id: 'resp_unknown' }).catch((error) => error)
    expect(unknown).toMatchObject({ status: 404, code: 'previous_response_not_found', param: 'previous_response_id' })
    const { id: model } = await toolLab.agent()
    expect(await status(create({ previous_response_id: response.id, model }))).toBe(404)
    const run = (await request(server(), 'GET', `/api/v1/executions/${response.id.slice('resp_'.length)}`)).body
      .execution
    await request(server(), 'DELETE', `/api/v1/chats/${run.chatId}`)
    const deleted = await create({ previous_response_id: response.id }).catch((error) => error)
    expect(deleted).toMatchObject({ status: 404, code: 'previous_response_not_found' })
    const weak = await server().member({ scopes: ['tasks:read'] })
    expect(await status(clientOf(weak.token).responses.retrieve(response.id))).toBe(403)
  })

  it('shows why a run failed', async () => {
    const refusal = { error: { status: 400, message: 'No such thing' } }
    model().script(refusal, refusal, refusal)
    await expect(create()).rejects.toMatchObject({ status: 500, message: expect.stringContaining('No such thing') })
    // LangChain ignores `response.failed`, but not the error that the library throws.
    const body = { model: agent, input: 'Hi', stream: true } as const
    const message = expect.stringContaining('No such thing')
    // After another code, Codex and opencode repeat the request.
    const failed = { type: 'run_error', code: 'invalid_prompt', message }
    await expect(Array.fromAsync(await clientOf().responses.create(body))).rejects.toMatchObject(failed)
    const text = await (await clientOf().responses.create(body).asResponse()).text()
    const events = text.split('\n').flatMap((line) => (line.startsWith('data: {') ? JSON.parse(line.slice(6)) : []))
    expect(misfits(events)).toEqual([])
    expect(events.at(-2)).toMatchObject({ type: 'error', error: failed, message })
    const response = { status: 'failed', error: { code: 'invalid_prompt', message } }
    expect(events.at(-1)).toMatchObject({ type: 'response.failed', response })
  })

  it('serves the provider of Open Responses in the AI SDK', async () => {
    const provider = createOpenResponses({
      name: 'muster',
      url: `${server().url}/openai/v1/responses`,
      apiKey: server().token,
    })
    model().script({ tokens: 'Good day.' }, { tokens: ['<think>', 'Hm.', '</think>', 'Good night.'] })
    expect((await generateText({ model: provider(agent), prompt: 'Hello' })).text).toBe('Good day.')
    const result = streamText({ model: provider(agent), prompt: 'Bye' })
    expect(await result.text).toBe('Good night.')
    expect(await result.reasoningText).toBe('Hm.')
  })

  it('serves the provider of OpenAI in the AI SDK if the agent calls its tools', async () => {
    const provider = createOpenAI({ baseURL: `${server().url}/openai/v1`, apiKey: server().token })
    model().script({ toolCalls: [call('echo', { text: 'x' })] }, { tokens: 'Done.' })
    expect((await generateText({ model: provider(agent), prompt: 'Hello' })).text).toBe('Done.')
  })

  it('is a run of the service like any other', async () => {
    const response = await create({ input: 'Look me up' })
    const id = response.id.replace('resp_', '')
    const { body } = await request(server(), 'GET', `/api/v1/executions/${id}`, { token: server().token })
    expect(body.execution).toMatchObject({ message: 'Look me up', status: 'completed' })
  })
})
