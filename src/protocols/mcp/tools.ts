import { z } from 'zod'
import type { CachedAgent } from '../../agents/agent-cache.ts'
import type { Actor } from '../../auth/actor.ts'
import { covers, type Scope } from '../../auth/scopes.ts'
import type { Deps } from '../../deps.ts'
import { badRequest } from '../../errors.ts'
import { Execute } from '../../executions/schema.ts'
import { callerOf, type Procedure } from '../../http/call.ts'
import { MAX_NAME } from '../../http/door-schemas.ts'
import { procedures } from '../../http/procedures.ts'
import { readKey } from '../../idempotency.ts'
import { checkInput, INVALID_IDEMPOTENCY_KEY } from '../../lib/fields.ts'
import { nearest } from '../../lib/nearest.ts'
import { asList } from '../../lib/unknown.ts'
import type { Context } from '../../trpc.ts'
import { findAgent } from '../shared/agents.ts'
import { conversationOf, startRun } from '../shared/runs.ts'
import { pick, toInputSchema, toOutputSchema } from './schemas.ts'

/** The definition of a tool as clients see it. */
export type Definition = {
  name: string
  title: string
  description: string
  inputSchema: { type: 'object'; [key: string]: unknown }
  outputSchema: { type: 'object'; [key: string]: unknown }
  annotations: {
    readOnlyHint: boolean
    destructiveHint: boolean
    idempotentHint: boolean
    openWorldHint: boolean
  }
}

/** A tool that calls a procedure. */
export type Tool = {
  definition: Definition
  /** Any of these scopes is enough. */
  scopes: readonly Scope[]
  /** Whether it starts a run, and waits for its end. */
  waits: boolean
  /** Calls the procedure, with `options` beside the arguments. Throws a TRPCError, and 400 for an unknown argument. */
  call: (context: Context, actor: Actor, args: Arguments, options?: Arguments) => Promise<object>
}

type Arguments = Readonly<Record<string, unknown>>

/** Fields of the answer of a run that waits for a person whom the client cannot ask. */
const WAITING = {
  waitingFor: z.enum(['approval', 'authorization']).optional().describe('The run waits for a person'),
  approvalsUrl: z.string().optional().describe('Page on which the person acts'),
}

/** Number of rows of a list unless the client asks for another: models read all of them. */
const DEFAULT_LIMIT = 50
const LIMIT = 'Maximum number of rows; fewer if they are long'

const AGENT = 'The agent: its id, its name if only one has it, its slug, or <organization slug>/<agent slug>'

const IDEMPOTENCY_KEY_SCHEMA = {
  type: 'string',
  minLength: 1,
  maxLength: 255,
  description: 'A call with this key takes effect once in 24 hours',
}

let tools: ReadonlyMap<string, Tool> | undefined

/** Returns the tools by name: every procedure with an `mcp` entry in its metadata. They are made at the first call. */
export function toolsByName(): ReadonlyMap<string, Tool> {
  tools ??= new Map(
    Object.entries(procedures)
      .filter(([, { _def }]) => _def.meta?.mcp)
      .map(([path, procedure]) => toTool(path, procedure))
      .map((tool) => [tool.definition.name, tool] as const),
  )
  return tools
}

/** Returns whether a caller may use a tool. */
export const mayUse = ({ scopes }: Pick<Actor, 'scopes'>, tool: Tool): boolean =>
  !tool.scopes.length || tool.scopes.some((scope) => covers(scopes, scope))

function toTool(path: string, procedure: Procedure): Tool {
  const { inputs, meta, output, type } = procedure._def
  if (!output) throw new Error(`The procedure ${path} is a tool without an output`)
  const { name, inputs: taken, description, destroys = false, repeats = false } = meta!.mcp!
  const names = taken.split(' ')
  const reads = type === 'query'
  const startsRun = meta?.startsRun === true
  const { method, path: pattern = '' } = meta?.openapi ?? {}
  const takesKey = method === 'POST'
  const full = toInputSchema(inputs[0]!)
  const waits = startsRun && Object.hasOwn(full.properties as object, 'background')
  const inputSchema = pick(full, names) as Definition['inputSchema']
  const properties = inputSchema.properties as Record<string, object>
  if (properties.limit) properties.limit = { ...properties.limit, default: DEFAULT_LIMIT, description: LIMIT }
  if (takesKey) properties.idempotencyKey = IDEMPOTENCY_KEY_SCHEMA
  const namesAgent = name === 'run_agent'
  if (namesAgent) properties.id = { ...properties.id, description: AGENT }
  const needsOrganization = Object.hasOwn(full.properties as object, 'orgId')
  const call = callerOf(procedure, path)
  const summary = meta?.openapi?.summary ?? name
  return {
    definition: {
      name,
      title: summary,
      description: description ?? `${summary}.`,
      inputSchema,
      // The tools that read a resource describe the answers of its changes.
      outputSchema: toOutputSchema(
        waits ? output.extend(WAITING) : output,
        reads ? 2 : 1,
      ) as Definition['outputSchema'],
      annotations: {
        readOnlyHint: reads,
        destructiveHint: destroys,
        idempotentHint: reads || repeats,
        openWorldHint: startsRun,
      },
    },
    scopes: meta?.scopes ?? [],
    waits,
    async call(context, actor, given, options = {}) {
      // A change may empty a text.
      const { idempotencyKey, ...args } = method === 'PATCH' ? given : withoutEmpty(given, inputSchema)
      checkArguments(args, properties)
      const limit = properties.limit && { limit: DEFAULT_LIMIT }
      const isNamed = namesAgent && typeof args.id === 'string'
      const named =
        isNamed && (await findAgent(actor, context.deps, args.id as string, 'The tool list_agents lists them.'))
      const organization = needsOrganization && { orgId: actor.organizationId }
      const input = { ...limit, ...args, ...options, ...organization, ...(named && { id: named.id }) }
      const idempotency = takesKey ? keyOf(idempotencyKey, pattern, input) : null
      return (await call({ ...context, idempotency }, async () => input)) as object
    },
  }
}

/** Returns the key of a call: the same key means the same request over REST. */
function keyOf(key: unknown, pattern: string, input: Readonly<Record<string, unknown>>) {
  if (key === undefined || key === null) return null
  if (typeof key !== 'string') throw badRequest(INVALID_IDEMPOTENCY_KEY)
  return readKey(
    key,
    'POST',
    pattern.replace(/\{(\w+)\}/g, (_, name: string) => String(input[name])),
  )
}

/** Leaves out empty texts of optional arguments, with which models fill those that they do not need. */
const withoutEmpty = (args: Arguments, { required }: { required?: unknown; type?: 'object' }): Arguments =>
  Object.fromEntries(Object.entries(args).filter(([name, value]) => value !== '' || asList(required).includes(name)))

/** Throws 400 for an argument that the tool does not have. */
function checkArguments(args: Arguments, properties: object): void {
  const unknown = Object.keys(args).find((argument) => !Object.hasOwn(properties, argument))
  if (unknown !== undefined) throw unknownArgument(unknown, Object.keys(properties))
}

const unknownArgument = (name: string, known: readonly string[]) => {
  const meant = nearest(name, known)
  return badRequest(`Unknown argument: ${name.slice(0, 100)}`, {
    code: 'invalid_parameter',
    detail: meant ? `Did you mean ${meant}?` : `The arguments of this tool are: ${known.join(', ')}`,
  })
}

/** Returns the one tool of an agent: `ask`. */
export function agentTools(deps: Deps, agent: CachedAgent): ReadonlyMap<string, Tool> {
  const { definition, scopes } = toolsByName().get('run_agent')!
  const { message, idempotencyKey } = definition.inputSchema.properties as Record<string, object>
  const properties = {
    message,
    session: {
      type: 'string',
      minLength: 1,
      maxLength: MAX_NAME,
      description: 'Conversation to continue: any name of your choice, or the `sessionId` of an earlier answer',
    },
    idempotencyKey,
  }
  const path = `/mcp/agents/${agent.id}`
  return new Map([
    [
      'ask',
      {
        scopes,
        waits: true,
        definition: {
          ...definition,
          name: 'ask',
          title: `Ask ${agent.name}`,
          description: [`Ask the agent ${agent.name}.`, agent.role, agent.description].filter(Boolean).join(' '),
          inputSchema: { type: 'object', properties, required: ['message'], additionalProperties: false },
        },
        async call(context, caller, given) {
          const { idempotencyKey: key, ...args } = withoutEmpty(given, { required: ['message'] })
          checkArguments(args, properties)
          checkInput(args)
          const { message: text, session = null } = Ask.parse(args)
          const request = {
            agent,
            protocol: 'mcp' as const,
            path,
            body: args,
            message: text,
            ...conversationOf(session),
            history: null,
            options: { background: true },
          }
          const { onAccepted, countRun } = context
          return startRun(caller, deps, request, { idempotency: keyOf(key, path, {}), onAccepted, countRun })
        },
      } satisfies Tool,
    ],
  ])
}

const Ask = z.object({
  message: Execute.shape.message,
  session: z.string().min(1).max(MAX_NAME).nullish(),
})
