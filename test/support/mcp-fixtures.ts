import { setTimeout as sleep } from 'node:timers/promises'
import {
  acceptedContent,
  completable,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  McpServer,
  ResourceTemplate,
  type ServerContext,
} from '@modelcontextprotocol/server'
import { z } from 'zod'

// The tools, resources and prompts that the scenarios of @modelcontextprotocol/conformance call by name.

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
const WAV = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA='

const text = (content: string) => ({ content: [{ type: 'text' as const, text: content }] })
const image = { type: 'image' as const, data: PNG, mimeType: 'image/png' }
const user = (content: object) => ({ role: 'user' as const, content: content as { type: 'text'; text: string } })

const ask = (message: string, properties: Record<string, { type: 'string' } | { type: 'boolean' }>) =>
  inputRequired.elicit({
    message,
    requestedSchema: { type: 'object', properties, required: Object.keys(properties) },
  })
const sample = (question: string, maxTokens: number) =>
  inputRequired.createMessage({ messages: [user({ type: 'text', text: question })], maxTokens })

const state = createRequestStateCodec({ key: 'a key of the test that has at least 32 bytes' })

const capabilitiesOf = ({ mcpReq }: ServerContext) =>
  (mcpReq.envelope as Record<string, object> | undefined)?.['io.modelcontextprotocol/clientCapabilities'] ?? {}

/** Creates the server that the scenarios expect. `changePrompts` tells subscribers that prompts have changed. */
export function createFixtures(changePrompts: () => void): McpServer {
  const mcp = new McpServer(
    { name: 'fixtures', version: '1.0.0' },
    {
      capabilities: { logging: {}, prompts: { listChanged: true }, completions: {}, tools: {} },
      requestState: { verify: state.verify },
    },
  )
  addTools(mcp, changePrompts)
  addQuestions(mcp)
  addPrompts(mcp)
  addResources(mcp)
  return mcp
}

function addTools(mcp: McpServer, changePrompts: () => void): void {
  const tool = (name: string, call: (context: ServerContext) => unknown) =>
    mcp.registerTool(name, { description: name, inputSchema: z.object({}) }, (async (
      _: object,
      context: ServerContext,
    ) => call(context)) as never)

  tool('test_simple_text', () => text('This is a simple text response for testing.'))
  tool('test_image_content', () => ({ content: [image] }))
  tool('test_audio_content', () => ({ content: [{ type: 'audio', data: WAV, mimeType: 'audio/wav' }] }))
  const embedded = (uri: string, mimeType: string, content: string) => ({
    type: 'resource',
    resource: { uri, mimeType, text: content },
  })
  tool('test_embedded_resource', () => ({
    content: [embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')],
  }))
  tool('test_multiple_content_types', () => ({
    content: [
      { type: 'text', text: 'Multiple content types test:' },
      image,
      embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ],
  }))
  tool('test_error_handling', () => {
    throw new Error('This tool intentionally returns an error for testing')
  })
  tool('test_tool_with_progress', async ({ mcpReq }) => {
    const progressToken = mcpReq._meta?.progressToken
    for (const progress of [0, 50, 100]) {
      if (progressToken === undefined) continue
      await mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress, total: 100 } })
    }
    return text('Done')
  })
  for (const name of ['test_tool_with_logging', 'test_logging_tool']) {
    tool(name, async ({ mcpReq }) => {
      for (const line of ['Tool execution started', 'Tool processing data', 'Tool execution completed']) {
        await mcpReq.log('info', line)
        await sleep(10)
      }
      return text('Done')
    })
  }
  tool('test_missing_capability', () => inputRequired({ inputRequests: { question: sample('Who?', 50) } }))
  tool('test_trigger_prompt_change', () => {
    changePrompts()
    return text('Done')
  })
}

function addQuestions(mcp: McpServer): void {
  const tool = (name: string, call: (context: ServerContext) => unknown) =>
    mcp.registerTool(`test_input_required_result_${name}`, { description: name, inputSchema: z.object({}) }, (async (
      _: object,
      context: ServerContext,
    ) => call(context)) as never)
  const nameOf = ({ mcpReq }: ServerContext, key = 'user_name') =>
    acceptedContent(mcpReq.inputResponses, key, z.object({ name: z.string() }))?.name

  tool('elicitation', (context) => {
    const name = nameOf(context)
    if (name) return text(`Hello, ${name}!`)
    return inputRequired({ inputRequests: { user_name: ask('What is your name?', { name: { type: 'string' } }) } })
  })
  mcp.registerTool('test_streaming_elicitation', { description: 'x', inputSchema: z.object({}) }, () =>
    inputRequired({ inputRequests: { user_name: ask('What is your name?', { name: { type: 'string' } }) } }),
  )
  tool('sampling', ({ mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, 'capital_question')
    if (answer.kind === 'sampling') return text(JSON.stringify(answer.result.content))
    return inputRequired({ inputRequests: { capital_question: sample('What is the capital of France?', 100) } })
  })
  tool('list_roots', ({ mcpReq }) => {
    const answer = inputResponse(mcpReq.inputResponses, 'client_roots')
    if (answer.kind === 'roots') return text(answer.roots.map(({ uri }) => uri).join(', '))
    return inputRequired({ inputRequests: { client_roots: inputRequired.listRoots() } })
  })
  const confirm = { confirm: ask('Please confirm', { ok: { type: 'boolean' } }) }
  for (const name of ['request_state', 'tampered_state']) {
    tool(name, async (context) => {
      if (context.mcpReq.requestState()) return text('state-ok')
      return inputRequired({ inputRequests: confirm, requestState: await state.mint({ of: name }, context) })
    })
  }
  tool('multiple_inputs', async (context) => {
    if (context.mcpReq.requestState() && nameOf(context)) return text('All there')
    return inputRequired({
      inputRequests: {
        user_name: ask('What is your name?', { name: { type: 'string' } }),
        greeting: sample('Generate a greeting', 50),
        client_roots: inputRequired.listRoots(),
      },
      requestState: await state.mint({ round: 1 }, context),
    })
  })
  tool('multi_round', async (context) => {
    const { round = 0, name } = (context.mcpReq.requestState() ?? {}) as { round?: number; name?: string }
    if (round === 2) return text(`Done, ${name}`)
    const given = nameOf(context, 'step1')
    const inputRequests = given
      ? { step2: ask('Step 2: What is your favorite color?', { color: { type: 'string' } }) }
      : { step1: ask('Step 1: What is your name?', { name: { type: 'string' } }) }
    const next = given ? { round: 2, name: given } : { round: 1 }
    return inputRequired({ inputRequests, requestState: await state.mint(next, context) })
  })
  tool('capabilities', (context) => {
    const declared = capabilitiesOf(context)
    return inputRequired({
      inputRequests: {
        ...('elicitation' in declared && { user_name: ask('Name?', { name: { type: 'string' } }) }),
        ...('sampling' in declared && { greeting: sample('Generate a greeting', 50) }),
      },
      requestState: '',
    })
  })
}

function addPrompts(mcp: McpServer): void {
  const prompt = (content: object[]) => ({ messages: content.map(user) })
  mcp.registerPrompt('test_simple_prompt', { description: 'x' }, () =>
    prompt([{ type: 'text', text: 'This is a simple prompt for testing.' }]),
  )
  const argument = completable(z.string(), (value) =>
    ['paris', 'park', 'party'].filter((word) => word.startsWith(value)),
  )
  mcp.registerPrompt(
    'test_prompt_with_arguments',
    { description: 'x', argsSchema: z.object({ arg1: argument, arg2: z.string() }) },
    ({ arg1, arg2 }) => prompt([{ type: 'text', text: `Prompt with arguments: arg1='${arg1}', arg2='${arg2}'` }]),
  )
  mcp.registerPrompt(
    'test_prompt_with_embedded_resource',
    { description: 'x', argsSchema: z.object({ resourceUri: z.string() }) },
    ({ resourceUri: uri }) =>
      prompt([
        { type: 'resource', resource: { uri, mimeType: 'text/plain', text: 'Embedded resource content for testing.' } },
        { type: 'text', text: 'Please process the embedded resource above.' },
      ]),
  )
  mcp.registerPrompt('test_prompt_with_image', { description: 'x' }, () =>
    prompt([image, { type: 'text', text: 'Please analyze the image above.' }]),
  )
  mcp.registerPrompt('test_input_required_result_prompt', { description: 'x' }, ((context: ServerContext) => {
    const content = acceptedContent(context.mcpReq.inputResponses, 'user_context')
    if (content) return prompt([{ type: 'text', text: String(content.context) }])
    const question = ask('What context should the prompt use?', { context: { type: 'string' } })
    return inputRequired({ inputRequests: { user_context: question } })
  }) as never)
}

function addResources(mcp: McpServer): void {
  mcp.registerResource('static-text', 'test://static-text', { mimeType: 'text/plain' }, ({ href: uri }) => ({
    contents: [{ uri, mimeType: 'text/plain', text: 'This is the content of the static text resource.' }],
  }))
  mcp.registerResource('static-binary', 'test://static-binary', { mimeType: 'image/png' }, ({ href: uri }) => ({
    contents: [{ uri, mimeType: 'image/png', blob: PNG }],
  }))
  const template = new ResourceTemplate('test://template/{id}/data', { list: undefined })
  mcp.registerResource('template', template, { mimeType: 'application/json' }, ({ href: uri }, { id }) => ({
    contents: [
      {
        uri,
        mimeType: 'application/json',
        text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
      },
    ],
  }))
}
