import type OpenAI from 'openai'
import { beforeEach, describe, expect, it } from 'vitest'
import { giveResults } from '../../src/executions/engine/queue/client-tools.ts'
import { request } from '../support/rest.ts'
import { assistant, failureOf, namesOf, startOpenAILab, TOOL, text, user } from './openai-lab.ts'

const { model, server, ann, create, clientOf, asked, executions } = await startOpenAILab()
let agent: string
beforeEach(async () => {
  agent = (await create()).id
})

describe('function tools of the client', () => {
  const tools = [TOOL]
  const CALL = { toolCalls: [{ id: 'call_1', name: 'client__get_weather', input: { city: 'Rome' } }] }
  const TWO = ['Rome', 'Oslo'].map((city, index) => ({
    id: `call_${index}`,
    name: 'client__get_weather',
    input: { city },
  }))

  it.each([false, true])('pause the run, and their results continue it (stream: %s)', async (stream) => {
    model.script(CALL, { tokens: 'It is sunny.' })
    const body = { model: agent, tools, messages: [user('Weather?')] as OpenAI.Chat.ChatCompletionMessageParam[] }
    const complete = async (messages: typeof body.messages) =>
      stream
        ? await clientOf()
            .chat.completions.stream({ ...body, messages })
            .finalChatCompletion()
        : await clientOf().chat.completions.create({ ...body, messages })
    const first = await complete(body.messages)
    const [choice] = first.choices
    expect(choice).toMatchObject({
      finish_reason: 'tool_calls',
      message: { tool_calls: [{ type: 'function', function: { name: 'get_weather', arguments: '{"city":"Rome"}' } }] },
    })
    const id = first.id.replace('chatcmpl-', '')
    const waiting = await request(server, 'GET', `/api/v1/executions/${id}`, { token: ann.token })
    expect(waiting.body.execution).toMatchObject({ status: 'pending', waitingFor: 'client_tool' })
    const call = choice?.message.tool_calls?.[0]
    const results = [
      ...[...body.messages, choice!.message],
      { role: 'tool' as const, tool_call_id: call!.id, content: 'Sunny, 21 degrees' },
    ]
    const second = await complete(results)
    expect(text(second)).toBe('It is sunny.')
    // LangGraph for JavaScript takes a message with the id of an earlier one for a new version of that.
    expect(second.id).toContain(`${first.id}_`)
    expect(model.requests.at(-1)?.body.messages.at(-1)).toMatchObject({ role: 'tool', content: 'Sunny, 21 degrees' })
    const count = model.requests.length
    const repeated = await complete(results)
    expect([repeated.id, text(repeated)]).toEqual([second.id, 'It is sunny.'])
    expect(model.requests.length).toBe(count)
  })

  it('continue their run once if the same results are sent several times at once', async () => {
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather?')]
    const complete = () => clientOf().chat.completions.create({ model: agent, tools, messages })
    model.script({ toolCalls: TWO }, { tokens: 'It is sunny.' })
    const { message } = (await complete()).choices[0]!
    messages.push(message)
    for (const { id } of message.tool_calls!) messages.push({ role: 'tool', tool_call_id: id, content: 'Sunny' })
    const count = model.requests.length
    const answers = await Promise.all(Array.from({ length: 6 }, complete))
    expect(new Set(answers.map(({ id }) => id)).size).toBe(1)
    expect(new Set(answers.map(text))).toEqual(new Set(['It is sunny.']))
    expect(model.requests.length).toBe(count + 1)
  })

  it('have their results once, and none once their run is to be cancelled', async () => {
    model.script(CALL)
    const { id } = await clientOf().chat.completions.create({ model: agent, tools, messages: [user('Weather?')] })
    const executionId = id.replace('chatcmpl-', '')
    for (const data of [{ wantsCancel: true }, { waitingFor: null }]) {
      const late = server.service.deps.db.$transaction(async (tx) => {
        await tx.execution.update({ where: { id: executionId }, data })
        await giveResults(tx, executionId, [], new Date())
      })
      await expect(late).rejects.toThrow('The run does not wait for these results')
    }
  })

  it("have ids that fit OpenAI's models, and those of an earlier server reach their run", async () => {
    const calls = ['a', 'b'].map((id) => ({ ...CALL.toolCalls[0]!, id: `chatcmpl-tool-${id.repeat(32)}` }))
    model.script({ toolCalls: calls }, { tokens: 'It is sunny.' })
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather?')]
    const first = await clientOf().chat.completions.create({ model: agent, tools, messages })
    const made = first.choices[0]!.message.tool_calls!
    expect(made.map(({ id }) => /^call_[0-9A-Za-z]{35}$/.test(id))).toEqual([true, true])
    expect(new Set(made.map(({ id }) => id)).size).toBe(2)
    const formerId = (index: number) => `call_${first.id.replace('chatcmpl-', '')}_1_${calls[index]!.id}`
    messages.push(first.choices[0]!.message)
    messages.push({ role: 'tool', tool_call_id: made[1]!.id, content: 'second' })
    messages.push({ role: 'tool', tool_call_id: formerId(0), content: 'first' })
    const second = await clientOf().chat.completions.create({ model: agent, tools, messages })
    expect(second.id).toContain(`${first.id}_`)
    const results = model.requests.at(-1)!.body.messages.slice(-2)
    expect(results.map(({ content }) => content)).toEqual(['first', 'second'])
  })

  it.each([false, true])('may be custom ones with a text as input (stream: %s)', async (stream) => {
    const format = { type: 'grammar' as const, grammar: { syntax: 'regex' as const, definition: 'P.*' } }
    const custom: OpenAI.Chat.ChatCompletionTool[] = [{ type: 'custom', custom: { name: 'patch', format } }]
    const body = { model: agent, tools: custom, messages: [user('Patch')] as OpenAI.Chat.ChatCompletionMessageParam[] }
    model.script({ toolCalls: [{ id: '1', name: 'client__patch', input: { input: 'P1' } }] }, { tokens: 'Patched.' })
    const deltas: object[] = []
    if (stream) {
      for await (const { choices } of await clientOf().chat.completions.create({ ...body, stream })) {
        deltas.push(...(choices[0]?.delta.tool_calls ?? []))
      }
    }
    const made = stream ? deltas : (await clientOf().chat.completions.create(body)).choices[0]?.message.tool_calls
    expect(made).toMatchObject([{ type: 'custom', custom: { name: 'patch', input: 'P1' } }])
    expect(model.requests.at(-1)?.body.tools).toMatchObject([
      { function: { parameters: { properties: { input: { description: expect.stringContaining('P.*') } } } } },
    ])
    // A client of its own ids is found by the texts.
    const tool_calls = made!.map((one) => ({ ...one, id: 'own' })) as OpenAI.Chat.ChatCompletionMessageToolCall[]
    body.messages.push({ role: 'assistant', tool_calls }, { role: 'tool', tool_call_id: 'own', content: 'Done' })
    expect(text(await clientOf().chat.completions.create(body))).toBe('Patched.')
  })

  it('keep their results if another message follows them while the run waits', async () => {
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather?')]
    const ask = () =>
      clientOf(ann, { 'X-Session-Id': 'keep' }).chat.completions.create({ model: agent, tools, messages })
    model.script(CALL, { tokens: 'Sunny.' })
    const { message } = (await ask()).choices[0]!
    messages.push(message, { role: 'tool', tool_call_id: message.tool_calls![0]!.id, content: '21 degrees' })
    messages.push(user('Here is a picture of it'))
    expect(text(await ask())).toBe('Sunny.')
    expect(asked()).toContain('tool: 21 degrees')
    expect((await executions()).slice(0, 2)).toMatchObject([{ status: 'completed' }, { status: 'cancelled' }])
  })

  it('keep the results of functions without ids if another message follows them', async () => {
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather?')]
    const ask = () =>
      clientOf(ann, { 'X-Session-Id': 'functions' }).chat.completions.create({
        ...{ model: agent, functions: [TOOL.function], messages },
      })
    const both = ['Rome', 'Oslo'].map((city) => ({ id: city, name: 'client__get_weather', input: { city } }))
    model.script({ toolCalls: both }, { tokens: 'Sunny.' })
    messages.push((await ask()).choices[0]!.message)
    messages.push({ role: 'function', name: 'get_weather', content: '21 degrees' }, user('Is that warm?'))
    expect(text(await ask())).toBe('Sunny.')
    const results = model.requests.at(-1)?.body.messages.filter(({ role }) => role === 'tool')
    expect(results).toMatchObject([{ content: '21 degrees' }, { content: expect.not.stringContaining('degrees') }])
  })

  it.each<[string, (index: number) => string | undefined]>([
    ['without ids', () => undefined],
    ['with ids of its own', (index) => `short${index}`],
  ])('continue the run of a client that sends calls and results %s', async (_, idOf) => {
    const both = ['Rome', 'Oslo'].map((city) => ({ id: city, name: 'client__get_weather', input: { city } }))
    model.script({ toolCalls: both }, { tokens: 'Sunny.' })
    const messages: object[] = [user(`Weather ${idOf(0)}?`)]
    const ask = () => clientOf().chat.completions.create({ model: agent, tools, messages: messages as never })
    const { message } = (await ask()).choices[0]!
    messages.push({ ...message, tool_calls: message.tool_calls!.map((call, index) => ({ ...call, id: idOf(index) })) })
    for (const index of [0, 1]) messages.push({ role: 'tool', tool_call_id: idOf(index), content: `${index} degrees` })
    expect(text(await ask())).toBe('Sunny.')
    const results = model.requests.at(-1)?.body.messages.filter(({ role }) => role === 'tool')
    expect(results?.map(({ content }) => content)).toEqual(['0 degrees', '1 degrees'])
  })

  it.each<[string, object, string]>([
    ['an object as arguments', { id: 'c1', function: { name: 'get_weather', arguments: { city: 'Rome' } } }, 'c1'],
    ['no id', { function: { name: 'get_weather', arguments: '{"city":"Rome"}' } }, ''],
  ])('are read from a history with %s', async (_, call, id) => {
    const history = [
      user('Weather?'),
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', tool_call_id: id, content: '21 degrees' },
      assistant('Warm.'),
      user('And now?'),
    ]
    await clientOf().chat.completions.create({ model: agent, tools, messages: history as never })
    const [, , made, result] = model.requests.at(-1)!.body.messages as any[]
    expect([made.tool_calls[0].function.arguments, result.content]).toEqual(['{"city":"Rome"}', '21 degrees'])
  })

  it('are read with their own results from a history that uses ids again', async () => {
    const made = (...cities: string[]) => ({
      role: 'assistant',
      content: null,
      tool_calls: cities.map((city) => ({
        id: 'call_0',
        function: { name: 'get_weather', arguments: JSON.stringify({ city }) },
      })),
    })
    const given = (content: string) => ({ role: 'tool', tool_call_id: 'call_0', content })
    const one = [user('One?'), made('Rome'), given('warm'), made('Kiel'), given('wet'), assistant('Both.')]
    const two = [user('Two?'), made('Oslo', 'Bern'), given('cold'), given('dry'), assistant('Both.')]
    const messages = [...one, ...two, user('And now?')] as never
    await clientOf().chat.completions.create({ model: agent, tools, messages })
    const sent = model.requests.at(-1)!.body.messages as any[]
    const cities = sent.flatMap(({ tool_calls = [] }) =>
      tool_calls.map((call: any) => JSON.parse(call.function.arguments).city),
    )
    const results = sent.flatMap(({ role, content }) => (role === 'tool' ? content : []))
    expect([cities, results]).toEqual([
      ['Rome', 'Kiel', 'Oslo', 'Bern'],
      ['warm', 'wet', 'cold', 'dry'],
    ])
  })

  it.each(['chat', 'responses'])(
    'change with the results, as do the instructions after a handoff (%s)',
    async (api) => {
      const toTool = (name: string) => ({ ...TOOL.function, name })
      const results: string[] = []
      let calls: OpenAI.Chat.ChatCompletionMessageParam[] = []
      let items: OpenAI.Responses.ResponseInputItem[] = []
      /** Asks as one agent of the client, and adds its calls and their results to the conversation. */
      async function ask(instructions: string, ...names: string[]) {
        if (api === 'chat') {
          const { choices } = await clientOf().chat.completions.create({
            model: agent,
            messages: [{ role: 'system', content: instructions }, user('Refund me'), ...calls],
            ...(names.length && {
              tools: names.map((name) => ({ type: 'function' as const, function: toTool(name) })),
            }),
          })
          const { message } = choices[0]!
          results.push(message.content ?? '')
          const made = message.tool_calls ?? []
          calls = [
            ...calls,
            message,
            ...made.map(({ id }) => ({ role: 'tool' as const, tool_call_id: id, content: 'Done' })),
          ]
          return made.map((one) => (one.type === 'function' ? one.function.name : ''))
        }
        const { output, output_text, tools } = await clientOf().responses.create({
          model: agent,
          instructions,
          input: [{ role: 'user', content: 'Refund me' }, ...items],
          tools: names.map((name) => ({ type: 'function', strict: false, ...toTool(name) })),
        })
        expect(tools).toMatchObject(names.map((name) => ({ name })))
        results.push(output_text)
        const made = output.flatMap((item) => (item.type === 'function_call' ? item : []))
        items = [
          ...items,
          ...made.flatMap((one) => [
            one,
            { type: 'function_call_output' as const, call_id: one.call_id, output: 'Done' },
          ]),
        ]
        return made.map((one) => one.name)
      }
      const call = (name: string) => ({ toolCalls: [{ id: '1', name: `client__${name}`, input: { city: 'Rome' } }] })
      model.script(call('transfer'), call('refund'), { tokens: 'Refunded.' })
      expect(await ask('You sort requests.', 'transfer')).toEqual(['transfer'])
      expect(await ask('You refund.', 'refund')).toEqual(['refund'])
      const { messages, tools: offered } = model.requests.at(-1)!.body
      expect(messages[0]?.content).toBe('You are Ada.\n\nYou refund.')
      expect(offered).toMatchObject([{ function: { name: 'client__refund' } }])
      expect(messages.slice(1).map(({ role }) => role)).toEqual(['user', 'assistant', 'tool'])
      expect(messages.at(-1)?.content).toBe('Done')
      await ask('You say goodbye.')
      expect(results.at(-1)).toBe('Refunded.')
      expect(model.requests.at(-1)?.body.tools).toBeUndefined()
    },
  )

  it('can be demanded by name, for the first step', async () => {
    model.script(CALL, { tokens: 'It is sunny.' })
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather?')]
    const demand = { type: 'function' as const, function: { name: 'get_weather' } }
    const complete = (tool_choice: OpenAI.Chat.ChatCompletionToolChoiceOption) =>
      clientOf().chat.completions.create({ model: agent, tools, tool_choice, messages })
    const unknown = complete({ type: 'function', function: { name: 'get_time' } })
    await expect(unknown).rejects.toMatchObject({ status: 400, param: 'tool_choice' })
    const [choice] = (await complete(demand)).choices
    messages.push(choice!.message)
    messages.push({ role: 'tool', tool_call_id: choice!.message.tool_calls![0]!.id, content: 'Sunny' })
    await complete(demand)
    const demanded = { type: 'function', function: { name: 'client__get_weather' } }
    expect(model.requests.slice(-2).map(({ body }) => body.tool_choice)).toEqual([demanded, 'auto'])
    const choiceOf = { type: 'function' as const, name: 'get_weather' }
    const fields = { tools: tools.map(({ function: it }) => ({ type: 'function' as const, strict: false, ...it })) }
    const response = await clientOf().responses.create({ model: agent, input: 'Hi', tool_choice: choiceOf, ...fields })
    expect(response.tool_choice).toEqual(choiceOf)
  })

  it('are offered as far as the choice allows them', async () => {
    const other = { type: 'function' as const, function: { ...TOOL.function, name: 'get_time' } }
    const allowed = { type: 'function' as const, function: { name: 'get_time' } }
    const complete = (named: typeof allowed) =>
      clientOf().chat.completions.create({
        model: agent,
        tools: [...tools, other],
        tool_choice: { type: 'allowed_tools', allowed_tools: { mode: 'required', tools: [named] } },
        messages: [user('Time?')],
      })
    await complete(allowed)
    await clientOf().responses.create({
      model: agent,
      input: 'Time?',
      tools: [TOOL, other].map(({ function: it }) => ({ type: 'function' as const, strict: false, ...it })),
      tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'get_time' }] },
    })
    const offered = model.requests.slice(-2).map(({ body }) => [namesOf(body.tools), body.tool_choice])
    expect(offered).toEqual([
      [['client__get_time'], 'required'],
      [['client__get_time'], 'auto'],
    ])
    const none = complete({ type: 'function', function: { name: 'get_place' } })
    await expect(none).rejects.toMatchObject({ status: 400, param: 'tool_choice' })
  })

  it('are understood as the client of Mistral writes them, without types', async () => {
    const { function: it } = TOOL
    const body = { model: agent, messages: [user('Weather?')], tools: [{ function: it }], tool_choice: 'any' }
    expect((await request(server, 'POST', '/openai/v1/chat/completions', { body, token: ann.token })).status).toBe(200)
    const { tools: offered, tool_choice } = model.requests.at(-1)!.body
    expect([namesOf(offered), tool_choice]).toEqual([['client__get_weather'], 'required'])
  })

  it('are at most 128 in a request', async () => {
    const many = Array.from({ length: 129 }, (_, number) => ({
      type: 'function' as const,
      function: { ...TOOL.function, name: `get_${number}` },
    }))
    const ask = (tools: typeof many) =>
      clientOf().chat.completions.create({ model: agent, tools, messages: [user('Hi')] })
    await expect(ask(many)).rejects.toMatchObject({ status: 400, message: expect.stringContaining('at most 128') })
    expect(text(await ask(many.slice(1)))).not.toBe('')
  })

  it('have a chunk for each call, because many clients read the first call of a chunk alone', async () => {
    model.script({ toolCalls: TWO })
    const stream = await clientOf().chat.completions.create({
      model: agent,
      tools,
      messages: [user('Weather?')],
      stream: true,
    })
    const made: unknown[] = []
    for await (const { choices } of stream) if (choices[0]?.delta.tool_calls) made.push(choices[0].delta.tool_calls)
    const toChunk = (city: string, index: number) => [{ index, function: { arguments: `{"city":"${city}"}` } }]
    expect(made).toMatchObject(['Rome', 'Oslo'].map(toChunk))
  })

  it.each(['chat', 'responses'])('may be dropped by a client that takes one call at a time (%s)', async (api) => {
    model.script({ toolCalls: TWO }, { tokens: 'Sunny in Oslo.' })
    const question = user('Weather?')
    let answer: string | null | undefined
    if (api === 'chat') {
      const body = { model: agent, tools, messages: [question] }
      const { message } = (await clientOf().chat.completions.create(body)).choices[0]!
      const [, one] = message.tool_calls!
      const result = { role: 'tool' as const, tool_call_id: one!.id, content: '21 degrees' }
      const messages = [question, { ...message, tool_calls: [one!] }, result]
      answer = text(await clientOf().chat.completions.create({ ...body, messages }))
    } else {
      const body = { model: agent, tools: [{ type: 'function' as const, strict: false, ...TOOL.function }] }
      const { output } = await clientOf().responses.create({ ...body, input: [question] })
      const one = output.findLast((item) => item.type === 'function_call')!
      const result = { type: 'function_call_output' as const, call_id: one.call_id, output: '21 degrees' }
      answer = (await clientOf().responses.create({ ...body, input: [question, one, result] })).output_text
    }
    expect(answer).toBe('Sunny in Oslo.')
    const results = model.requests.at(-1)?.body.messages.slice(-2)
    expect(results?.map(({ content }) => content)).toEqual([
      expect.stringContaining('did not make this call'),
      '21 degrees',
    ])
  })

  it('accept results only from their own user, and all of a step together', async () => {
    model.script({ toolCalls: TWO })
    const body = { model: agent, tools, messages: [user('Weather?')] }
    const first = await clientOf().chat.completions.create(body)
    const made = first.choices[0]?.message.tool_calls ?? []
    expect(made).toHaveLength(2)
    const toMessages = (ids: string[]) => [
      ...body.messages,
      first.choices[0]!.message,
      ...ids.map((id) => ({ role: 'tool' as const, tool_call_id: id, content: '1' })),
    ]
    const give = (ids: string[], who = ann, to = agent) =>
      clientOf(who).chat.completions.create({ model: to, messages: toMessages(ids) })
    const ben = await server.member({ organization: 'Acme' })
    const ids = made.map(({ id }) => id)
    const missing = { status: 400, message: expect.stringContaining('is missing') }
    expect(await failureOf(give(ids.slice(1)))).toMatchObject(missing)
    // For others, these are a conversation with another agent, such as one that hands over.
    for (const other of [await give(ids, ben), await give(ids, ann, (await create()).id)]) {
      expect(other.id).not.toBe(first.id)
      expect(text(other)).toBe('A reply of the test model.')
      const results = ['Rome', 'Oslo'].map((city) => `get_weather({"city":"${city}"}):\n1`).join('\n\n')
      const follow = '[Results of tools that were called for this message follow]'
      expect(asked()?.slice(1)).toEqual([`user: Weather?\n\n${follow}\n\n${results}`])
    }
    expect((await give(ids)).id).toContain(`${first.id}_`)
  })

  it.each(['chat', 'responses'])('may be those of another model, which the agent then reads (%s)', async (api) => {
    const tool_calls = [{ id: 'toolu_1', type: 'function' as const, function: { name: 'search', arguments: '{}' } }]
    const own = { name: 'search', call_id: 'toolu_1' }
    const answer =
      api === 'chat'
        ? await clientOf()
            .chat.completions.create({
              model: agent,
              messages: [
                user('Who won?'),
                { role: 'assistant', tool_calls },
                { role: 'tool', tool_call_id: 'toolu_1', content: 'Norway' },
              ],
            })
            .then(text)
        : await clientOf()
            .responses.create({
              model: agent,
              input: [
                user('Who won?'),
                { type: 'function_call', arguments: '{}', ...own },
                { type: 'function_call_output', call_id: 'toolu_1', output: 'Norway' },
              ],
            })
            .then(({ output_text }) => output_text)
    expect(answer).toBe('A reply of the test model.')
    expect(asked()?.at(-1)).toMatch(/^user: Who won\?\n\n\[.*\]\n\nsearch\({}\):\nNorway$/)
    // Without the question, nothing can be answered.
    const output = { type: 'function_call_output' as const, call_id: 'toolu_1', output: 'Norway' }
    const none = { status: 400, message: expect.stringContaining('No run waits for these results') }
    const only = { role: 'tool' as const, tool_call_id: 'toolu_1', content: 'Norway' }
    const asks =
      api === 'chat'
        ? clientOf().chat.completions.create({ model: agent, messages: [only] })
        : clientOf().responses.create({ model: agent, input: [output] })
    expect(await failureOf(asks)).toMatchObject(none)
  })

  it('continue neither of two runs whose results are in one request', async () => {
    const made: OpenAI.Chat.ChatCompletion[] = []
    for (const city of ['Rome', 'Oslo']) {
      model.script({ toolCalls: [{ id: 'call_0', name: 'client__get_weather', input: { city } }] })
      const messages = [user(`Weather of ${city} alone?`)]
      made.push(await clientOf().chat.completions.create({ model: agent, tools, messages }))
    }
    const results = made.map(({ choices: [choice] }) => {
      const [call] = choice!.message.tool_calls!
      return { role: 'tool' as const, tool_call_id: call!.id, content: 'Sunny' }
    })
    const messages = [user('Weather of Rome alone?'), made[0]!.choices[0]!.message, ...results]
    const none = { status: 400, message: expect.stringContaining('No run waits for these results') }
    expect(await failureOf(clientOf().chat.completions.create({ model: agent, tools, messages }))).toMatchObject(none)
    for (const { id } of made) {
      const { body } = await request(server, 'GET', `/api/v1/executions/${id.replace('chatcmpl-', '')}`, ann)
      expect(body.execution.waitingFor).toBe('client_tool')
    }
  })

  it('function tools of the client sent again get the calls that their run has made since', async () => {
    const call = (city: string) => ({ id: 'call_0', name: 'client__get_weather', input: { city } })
    model.script({ toolCalls: [call('Rome')] }, { toolCalls: [call('Oslo')] })
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather of one, then of another?')]
    const ask = async () => {
      const { choices } = await clientOf().chat.completions.create({ model: agent, tools, messages })
      return choices[0]!.message
    }
    const first = await ask()
    messages.push(first, { role: 'tool', tool_call_id: first.tool_calls![0]!.id, content: 'Sunny' })
    const second = await ask()
    expect(second.tool_calls).toMatchObject([{ function: { arguments: '{"city":"Oslo"}' } }])
    expect(await ask()).toEqual(second)
  })

  it.each([false, true])('give each answer its own usage, because clients add them up (stream: %s)', async (stream) => {
    const usage = [1, 2, 3].map((factor) => ({ input: 10 * factor, output: factor }))
    const replies = [{ ...CALL }, { ...CALL }, { tokens: 'Sunny.' }]
    model.script(...replies.map((reply, index) => ({ ...reply, usage: usage[index]! })))
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather?')]
    const ask = () => {
      const body = { model: agent, tools, messages }
      const stream_options = { include_usage: true }
      return stream
        ? clientOf()
            .chat.completions.stream({ ...body, stream_options })
            .finalChatCompletion()
        : clientOf().chat.completions.create(body)
    }
    for (const { input, output } of usage) {
      const answer = await ask()
      expect(answer.usage).toMatchObject({ prompt_tokens: input, completion_tokens: output })
      const { message } = answer.choices[0]!
      const results = (message.tool_calls ?? []).map(({ id }) => ({ tool_call_id: id, content: 'Sunny' }))
      messages.push(message, ...results.map((result) => ({ role: 'tool' as const, ...result })))
    }
  })

  it.each([false, true])('work in the form without ids, one call at a time (stream: %s)', async (stream) => {
    const call = (city: string, index = 0) => ({ id: `call_${index}`, name: 'client__get_weather', input: { city } })
    const question = user(`Weather in three cities, ${stream}?`)
    model.script({ toolCalls: ['Rome', 'Oslo'].map(call) }, { toolCalls: [call('Rome')] }, { tokens: 'Sunny.' })
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [question]
    const complete = async () => {
      const body = { model: agent, functions: [TOOL.function], messages }
      const { choices } = stream
        ? await clientOf()
            .chat.completions.stream({ ...body, function_call: 'auto' })
            .finalChatCompletion()
        : await clientOf().chat.completions.create({ ...body, function_call: 'auto' })
      return choices[0]!
    }
    for (const city of ['Rome', 'Oslo', 'Rome']) {
      const { message, finish_reason } = await complete()
      expect([finish_reason, message.function_call]).toEqual([
        'function_call',
        { name: 'get_weather', arguments: JSON.stringify({ city }) },
      ])
      expect(message.tool_calls).toBeUndefined()
      messages.push({ role: 'assistant', content: null, function_call: message.function_call! })
      messages.push({ role: 'function', name: 'get_weather', content: `${messages.length} degrees` })
    }
    for (const _ of ['answer', 'repeated request'])
      expect(await complete()).toMatchObject({ finish_reason: 'stop', message: { content: 'Sunny.' } })
    const results = model.requests.at(-1)?.body.messages.filter(({ role }) => role === 'tool')
    expect(results?.map(({ content }) => content)).toEqual(['2 degrees', '4 degrees', '6 degrees'])
    const [{ id } = { id: '' }, ...others] = (await executions()).filter(({ message }) => message === question.content)
    expect(others).toEqual([])
    expect((await request(server, 'GET', `/api/v1/executions/${id}`, { token: ann.token })).body.execution.status).toBe(
      'completed',
    )
    const ben = await server.member({ organization: 'Acme' })
    expect((await clientOf(ben).chat.completions.create({ model: agent, messages })).id).not.toContain(id)
  })

  it('results without ids continue a waiting run, also beside 20 newer ones of the same question', async () => {
    const messages: OpenAI.Chat.ChatCompletionMessageParam[] = [user('Weather, as always?')]
    const complete = async () => {
      const body = { model: agent, functions: [TOOL.function], messages }
      return (await clientOf().chat.completions.create(body)).choices[0]!.message
    }
    model.script({ toolCalls: [{ id: 'call_0', name: 'client__get_weather', input: { city: 'Rome' } }] })
    messages.push(await complete(), { role: 'function', name: 'get_weather', content: '20 degrees' })
    for (let count = 0; count < 20; count++) {
      await request(server, 'POST', `/api/v1/agents/${agent}/execute`, {
        token: ann.token,
        body: { message: 'Weather, as always?' },
      })
    }
    model.script({ tokens: 'Sunny.' })
    expect(await complete()).toMatchObject({ content: 'Sunny.' })
  })
})
