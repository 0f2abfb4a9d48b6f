import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import { badRequest, invalidField } from '../../errors.ts'
import { asList, asText } from '../../lib/unknown.ts'
import { findAgent } from '../shared/agents.ts'
import { type ClientRequest, clientOf } from '../shared/begin.ts'
import type { ClientOverrides } from '../shared/client-tools.ts'
import { idempotencyOf, readBody } from '../shared/enter.ts'
import { checkQuestion, withQuestion } from '../shared/questions.ts'
import { findSessionId, type RunRequest } from '../shared/runs.ts'
import { qualified, readTools } from '../shared/tools.ts'
import { type ClientConversation, createTurns, readArguments } from '../shared/turns.ts'
import { Content, contentOf, textOf } from './content.ts'
import type { OpenAIRequest } from './door.ts'
import { findPrevious } from './find-response.ts'
import { checkName, conversationName } from './names.ts'
import { type Echo, readConversationId } from './response.ts'
import { allowedBy, demandOf, outputOf, readSettings, refuseLogprobs, SETTINGS } from './settings.ts'

const PATH = '/openai/v1/responses'

const item = z.looseObject({ type: z.string().nullish(), role: z.string().nullish(), content: Content })

const Request = z.object({
  model: z.string().max(300),
  input: z.union([z.string(), z.array(item)]),
  instructions: z.string().max(100_000).nullish(),
  previous_response_id: z.string().max(200).nullish(),
  conversation: z.union([z.string(), z.object({ id: z.string() })]).nullish(),
  tools: z.array(z.unknown()).nullish(),
  stream: z.boolean().nullish(),
  background: z.boolean().nullish(),
  metadata: z.record(z.string().max(64), z.string().max(512)).nullish(),
  max_output_tokens: z.number().nullish(),
  reasoning: z.object({ effort: z.string().nullish() }).nullish(),
  text: z.object({ format: z.record(z.string(), z.unknown()).nullish() }).nullish(),
  include: z.unknown().optional(),
  ...SETTINGS,
})
type Request = z.output<typeof Request>

type Received = Pick<OpenAIRequest, 'context' | 'actor' | 'req'>

/** Reads the request for a response. Throws 400 for input and settings that no run can have. */
export async function readResponseRequest({ context, actor, req }: Received) {
  const body = await readBody({ context, actor, req }, Request)
  const agent = await findAgent(actor, context.deps, body.model)
  const given = readInput(body)
  const transcript = isContinued(body) ? given : withQuestion(given)
  const idempotency = idempotencyOf(req, PATH)
  const overrides = overridesOf(body, transcript)
  const request: ClientRequest = {
    agent,
    results: transcript.results,
    listed: given.history.at(-1)?.toolCalls,
    // A request with the whole conversation has all tools of the client: without any, the run goes on without them.
    overrides: isContinued(body) ? overrides : { clientTools: [], ...overrides },
    isConversation: transcript.question !== null,
    idempotency,
    isWhole: !body.stream && !body.background,
    toRunRequest: () => toRunRequest({ context, actor, req }, { agent, body, transcript, overrides }),
  }
  return { body, request }
}

/** Returns the texts, tools and settings of a request. Throws 400 for settings that no run can have. */
function overridesOf(body: Request, transcript: ClientConversation): ClientOverrides {
  const items = typeof body.input === 'string' ? [] : body.input
  const others = items.flatMap(({ type, tools }) => (type === 'additional_tools' ? asList(tools) : []))
  const { tools, choice } = allowedBy(body.tool_choice, readTools(body.tools, others))
  const modelSettings = readSettings({
    ...body,
    tool_choice: choice,
    maxTokens: body.max_output_tokens,
    effort: body.reasoning?.effort,
  })
  refuseLogprobs({ include: asList(body.include).includes('message.output_text.logprobs') })
  return {
    ...clientOf(transcript, tools),
    ...demandOf(choice, tools),
    ...(modelSettings && { modelSettings }),
    ...outputOf(body.text?.format),
  }
}

/** The agent of a request, its body, and the parts read from it. */
type ParsedRequest = { agent: CachedAgent; body: Request; transcript: ClientConversation; overrides: ClientOverrides }

/**
 * Returns the run that a request asks for. Throws 400 for messages that no run can have, and 404 for what it continues.
 */
async function toRunRequest(
  { context: { deps }, actor, req }: Received,
  { agent, body, transcript, overrides }: ParsedRequest,
): Promise<RunRequest> {
  const previousResponseId = body.previous_response_id ?? null
  const conversation = typeof body.conversation === 'object' ? body.conversation?.id : body.conversation
  if (previousResponseId !== null && conversation) {
    const detail = 'Name the conversation, or the response before this one.'
    throw badRequest('Invalid value for field: conversation. Expected none beside previous_response_id', { detail })
  }
  const behind = previousResponseId === null ? null : await findPrevious(actor, deps, previousResponseId, agent)
  const sessionId = conversation ? await findSessionId(actor, deps, agent, readConversationId(conversation)) : null
  const name = conversation ? checkName(conversation, 'conversation') : conversationName(req)
  const echo: Echo = {
    model: body.model,
    metadata: body.metadata ?? {},
    previousResponseId,
    background: body.background === true,
  }
  const question = isContinued(body) ? questionsOf(transcript) : transcript.question
  return {
    agent,
    protocol: 'openai',
    path: PATH,
    body,
    sessionId,
    behind,
    results: transcript.allResults,
    files: transcript.files,
    message: checkQuestion(question, 'input'),
    name: sessionId === null && !behind ? name : null,
    history: isContinued(body) ? null : transcript.history,
    options: { ...(body.background && { background: true }) },
    client: { ...overrides, echo },
  }
}

/** Returns whether a request has its new messages alone, because it continues a conversation of the service. */
const isContinued = ({ previous_response_id: id, conversation }: Request): boolean =>
  (id ?? null) !== null || Boolean(typeof conversation === 'object' ? conversation?.id : conversation)

/** Returns all new messages of the user as one. */
function questionsOf({ history, question }: ClientConversation): string | null {
  const all = [...history.map(({ message }) => message), question].filter((text) => text !== null)
  return all.length ? all.join('\n\n') : null
}

/** Reads the input of a request as turns. */
function readInput({ input, instructions }: Request): ClientConversation {
  const turns = createTurns()
  if (instructions) turns.instruct(instructions)
  if (typeof input === 'string') turns.ask(input)
  for (const item of typeof input === 'string' ? [] : input) {
    if (item.type === 'function_call') {
      const name = qualified(asText(item.name), item.namespace)
      turns.call(asText(item.call_id), name, readArguments(asText(item.arguments)))
    } else if (item.type === 'custom_tool_call') {
      const name = qualified(asText(item.name), item.namespace)
      turns.call(asText(item.call_id), name, { input: asText(item.input) })
    } else if (item.type === 'function_call_output' || item.type === 'custom_tool_call_output') {
      // Items that a run does not read have other outputs.
      const { data: output, success } = Content.safeParse(item.output)
      if (!success) throw invalidField('input', 'outputs of functions as string or array')
      turns.result(asText(item.call_id), textOf(output))
    } else if (item.role) addMessage(turns, item.role, item.content)
    // Reasoning, references and the service's own items say nothing that a run reads.
  }
  turns.askInstruction()
  return turns.finish()
}

function addMessage(turns: ReturnType<typeof createTurns>, role: string, content: Content): void {
  if (role === 'user') {
    const { text, files } = contentOf(content)
    turns.ask(text, files)
    return
  }
  const text = textOf(content)
  if (role === 'assistant') turns.answer(text)
  else if (role === 'system' || role === 'developer') turns.instruct(text)
  else throw invalidField('input', 'roles user, assistant, system or developer')
}
