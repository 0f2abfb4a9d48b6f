import { getDatamodel } from '../../prisma/generated/pothos.ts'
import { beginSession } from '../../src/auth/sessions.ts'
import { Prisma } from '../../src/db/client.ts'
import { createToken } from '../../src/keys/service.ts'
import { newId, newTimedId } from '../../src/lib/id.ts'
import { apis } from '../support/api.ts'
import { exampleOf, type Input, isList, leastOf, shapeOf } from '../support/inputs.ts'
import { request } from '../support/rest.ts'
import type { Member, TestServer } from '../support/server.ts'

/** Kinds of ids. */
export type Kind =
  | 'agent'
  | 'approval'
  | 'browser'
  | 'chat'
  | 'delivery'
  | 'execution'
  | 'invitation'
  | 'key'
  | 'mcp'
  | 'media'
  | 'message'
  | 'mission'
  | 'organization'
  | 'service'
  | 'serviceKey'
  | 'session'
  | 'skill'
  | 'space'
  | 'task'
  | 'user'
  | 'webhook'

/** Ids of one member's things, one of each kind. */
export type Ids = Partial<Record<Kind, string>>

const OF_ROUTER: Record<string, Kind> = {
  agents: 'agent',
  approvals: 'approval',
  chats: 'chat',
  executions: 'execution',
  files: 'space',
  keys: 'key',
  mcps: 'mcp',
  media: 'media',
  missions: 'mission',
  organizations: 'organization',
  secrets: 'space',
  sessions: 'browser',
  skills: 'skill',
  spaces: 'space',
  tasks: 'task',
  webhooks: 'webhook',
}

const OF_FIELD: Record<string, Kind[]> = {
  actorId: ['user'],
  agentId: ['agent'],
  basedOnAgentId: ['agent'],
  characterId: ['agent'],
  subagentIds: ['agent'],
  assignedAgents: ['agent'],
  addAgents: ['agent'],
  addCharacters: ['agent'],
  removeAgents: ['agent'],
  removeCharacters: ['agent'],
  assignTo: ['agent', 'user'],
  assignedTo: ['agent', 'user'],
  chatId: ['chat'],
  deliveryId: ['delivery'],
  executionId: ['execution'],
  invitationId: ['invitation'],
  keyId: ['key'],
  parentExecutionId: ['execution'],
  mcpInstanceIds: ['mcp'],
  addMcps: ['mcp'],
  removeMcps: ['mcp'],
  pluginIds: ['mcp'],
  mediaIds: ['media'],
  missionId: ['mission'],
  orgId: ['organization'],
  organizationId: ['organization'],
  replaces: ['message'],
  sessionId: ['session'],
  skillId: ['skill'],
  skillIds: ['skill'],
  addSkills: ['skill'],
  removeSkills: ['skill'],
  spaceId: ['space'],
  taskId: ['task'],
  tokenId: ['key'],
  userId: ['user'],
}

/** Returns the kinds of a field's ids. Throws for a field that is not listed here. */
export function kindsOf(procedure: string, field: string): Kind[] {
  const router = procedure.split('.', 1)[0] ?? ''
  if (/Service/.test(procedure) && field !== 'id') return field === 'keyId' ? ['serviceKey'] : ['service']
  const own = field === 'id' ? OF_ROUTER[router] : undefined
  const kinds = own ? [own] : OF_FIELD[field]
  if (!kinds) throw new Error(`Say in test/security/fixtures.ts what the ids in ${procedure}.${field} are of`)
  return kinds
}

/** Creates a well-formed id that belongs to no row. */
export const neverWas = (kind: Kind): string =>
  kind === 'execution' ? newTimedId('exec', new Date()) : kind === 'task' ? newTimedId('task', new Date()) : newId()

/** Values beside the required fields that avoid a refusal for another reason. */
const ALSO: Record<string, (own: Ids) => Input> = {
  'agents.create': () => ({ systemPrompt: 'Be good.' }),
  'agents.execute': () => ({ background: true }),
  'executions.create': () => ({ background: true }),
  'chats.send': () => ({ background: true, message: 'an-example' }),
  'client.execute': ({ space }) => ({ background: true, spaceId: space }),
  'executions.rerun': () => ({ background: true }),
  'webhooks.create': () => ({ url: 'https://example.com/', events: ['*'] }),
  'missions.create': ({ agent }) => ({ agentId: agent }),
  'skills.create': () => ({ name: `skill-${newId().toLowerCase()}` }),
  'tasks.execute': () => ({ background: true }),
}

/** Fields that must be left out with another one, because both name the place of the same thing. */
const WITHOUT: Record<string, string[]> = { chatId: ['spaceId'], sessionId: ['spaceId'], characterId: ['agentId'] }

/** Creates an input with the caller's own ids, except that one field has this id. */
export function inputWith(procedure: string, field: string | null, id: string | undefined, own: Ids): Input {
  const shape = shapeOf(procedure)
  const input = { ...leastOf(procedure), ...ALSO[procedure]?.(own) }
  for (const name of Object.keys(input)) {
    if (/^id$|Id$/.test(name)) input[name] = own[kindsOf(procedure, name)[0] as Kind] ?? exampleOf(shape[name]!)
  }
  // Keeps callers from changing their own role or membership by accident.
  if (procedure.endsWith('Member')) input.userId = neverWas('user')
  if (field === null) return input
  for (const name of WITHOUT[field] ?? []) delete input[name]
  return { ...input, [field]: isList(shape[field]!) ? [id] : id }
}

/** Calls a procedure over tRPC. Throws unless it succeeds. */
async function act(server: TestServer, { token }: Pick<Member, 'token'>, procedure: string, input: Input) {
  const answer = await apis.tRPC(server, procedure, input, { token })
  if (answer.status !== 200) throw new Error(`${procedure}: ${JSON.stringify(answer.body)}`)
  return answer.body
}

type Marks = { visibility?: 'private' | 'organization' | 'public'; canary: string }

/** Creates things with the canary in every text that other users must not read. */
export function maker(server: TestServer, who: Member) {
  const { db, clock } = server.service.deps
  const does = (procedure: string, input: Input) => act(server, who, procedure, input)

  async function idle(): Promise<void> {
    const live = { organizationId: who.organizationId, terminalSeq: null }
    while (await db.execution.count({ where: live })) await new Promise((resolve) => setTimeout(resolve, 5))
  }

  return {
    does,
    idle,
    async agent({ visibility = 'organization', canary }: Marks, more: Input = {}): Promise<string> {
      const text = `${canary} agent`
      const agentInput = {
        name: text,
        role: text,
        description: text,
        systemPrompt: text,
        initialGreeting: text,
        tags: ['example'],
        visibility,
      }
      return (await does('agents.create', { ...agentInput, ...more })).id
    },
    async space({ visibility = 'organization', canary }: Marks, more: Input = {}): Promise<string> {
      const text = `${canary} space`
      const spaceInput = { name: text, description: text, instructions: text, visibility }
      const { id } = await does('spaces.create', { ...spaceInput, ...more })
      await does('files.write', { id, path: 'an-example', content: `${canary} file` })
      await does('secrets.set', { id, secrets: { AN_EXAMPLE: `${canary} secret` } })
      return id
    },
    async skill({ visibility = 'organization', canary }: Marks): Promise<string> {
      const text = `${canary} skill`
      const skillInput = { name: `skill-${newId().toLowerCase()}`, description: text, displayName: text, prompt: text }
      return (await does('skills.create', { ...skillInput, visibility })).id
    },
    async mcp({ canary }: Marks): Promise<string> {
      const mcpInput = { name: `${canary} mcp`, url: 'https://mcp.example.com/', mcpType: 'example' }
      const { id } = await does('mcps.create', { ...mcpInput, credentials: { KEY: { value: `${canary} credential` } } })
      const { db } = server.service.deps
      const { organizationId, userId } = who
      const row = { organizationId, mcpId: id, sealed: Buffer.from(canary), createdAt: new Date() }
      const owned = { ...row, userId, url: mcpInput.url }
      await db.mcpClient.create({ data: { ...row, issuer: mcpInput.url, isGiven: false, redirectUri: mcpInput.url } })
      await db.mcpConnection.create({ data: { ...owned, issuer: mcpInput.url, updatedAt: new Date() } })
      await db.mcpSignIn.create({ data: { ...owned, id: newId(), expiresAt: new Date('2100-01-01') } })
      return id
    },
    async task({ canary }: Marks, more: Input = {}): Promise<string> {
      return (await does('tasks.create', { title: `${canary} task`, description: `${canary} task`, ...more })).id
    },
    async mission({ visibility = 'organization', canary }: Marks, more: Input): Promise<string> {
      return (
        await does('missions.create', { title: `${canary} mission`, goal: `${canary} goal`, visibility, ...more })
      ).id
    },
    async key({ canary }: Marks): Promise<string> {
      return (await does('keys.create', { name: `${canary} key` })).id
    },
    /** A browser session of the member. */
    async browser({ canary }: Marks): Promise<string> {
      const { deps } = server.service
      const client = { address: '127.0.0.1', userAgent: `${canary} browser` }
      const begun = await db.$transaction((tx) =>
        beginSession(tx, deps, { userId: who.userId, method: 'password', client }),
      )
      return begun.session.id
    },
    /** An open invitation, which members cannot create themselves. */
    async invitation({ canary }: Marks): Promise<string> {
      const id = newId()
      const { organizationId, userId: createdBy } = who
      const email = `${canary}-${newId()}@example.com`
      const times = { createdAt: clock.now(), expiresAt: new Date(clock.now().getTime() + 3_600_000) }
      const data = { id, organizationId, email, role: 'member', digest: newId(), mailOnly: false, createdBy } as const
      await db.invitation.create({ data: { ...data, ...times }, select: { id: true } })
      return id
    },
    /** A service account with a key, which members cannot create themselves. */
    async service({ canary }: Marks): Promise<{ service: string; serviceKey: string }> {
      const now = clock.now()
      const { organizationId, userId: createdBy } = who
      const [userId, name] = [newId(), `${canary} service`]
      const { tokenKey } = server.service.deps
      return db.$transaction(async (tx) => {
        const user = { id: userId, email: `${newId()}@service.invalid`, name, createdAt: now, updatedAt: now }
        await tx.user.create({ data: user, select: { id: true } })
        const account = { userId, organizationId, createdBy, createdAt: now }
        await tx.serviceAccount.create({ data: account, select: { userId: true } })
        const membership = { organizationId, userId, role: 'member', createdAt: now } as const
        await tx.membership.create({ data: membership, select: { userId: true } })
        const key = { organizationId, userId, name, scopes: ['*'], expiresAt: null }
        const { row } = await createToken(tx, { tokenKey, prefix: 'mst', now }, key)
        return { service: userId, serviceKey: row.id }
      })
    },
    /** A webhook with a delivery, which members cannot make themselves. */
    async webhook({ canary }: Marks): Promise<{ webhook: string; delivery: string }> {
      const now = clock.now()
      const [id, delivery] = [newId(), newId()]
      const { organizationId } = who
      const place = { position: 0n, sequence: 0n }
      const address = { url: new Uint8Array(1), shownUrl: `https://${canary}.example.com/`, secret: new Uint8Array(1) }
      const data = { id, organizationId, ownerId: who.userId, description: canary, events: ['task.*'], ...address }
      const membership = { organizationId_userId: { organizationId, userId: who.userId } }
      const { role } = await db.membership.findUniqueOrThrow({ where: membership })
      // The server disables a webhook whose owner is no admin, and queues no event that stands before its place.
      const rest = { format: 'standard', includeContent: false, enabled: role !== 'member' } as const
      const end = { position: Number.MAX_SAFE_INTEGER, sequence: 0 }
      await db.webhook.create({ data: { ...data, ...rest, ...end, createdAt: now, updatedAt: now } })
      const notified = { organizationId, userId: who.userId, approvals: true, missions: true, ...place }
      await db.mailNotifications.upsert({
        where: { organizationId_userId: { organizationId, userId: who.userId } },
        create: notified,
        update: {},
        select: { userId: true },
      })
      const attempts = [{ at: now.toISOString(), status: 500, durationMs: 1, error: canary, response: canary }]
      const event = { event: 'task.created', subjectId: newId(), status: 'failed', attempts, createdAt: now } as const
      await db.webhookDelivery.create({ data: { id: delivery, organizationId, webhookId: id, ...place, ...event } })
      return { webhook: id, delivery }
    },
    async media({ canary }: Marks): Promise<string> {
      const body = new FormData()
      body.set('file', new File([`${canary} content`], `${canary} media.txt`))
      const headers = { Authorization: `Bearer ${who.token}` }
      const response = await fetch(`${server.url}/api/v1/media`, { method: 'POST', headers, body })
      return ((await response.json()) as { id: string }).id
    },
    /** An ended run, its chat and session, and an approval of one of its calls. */
    async run(
      { canary }: Marks,
      input: Input,
    ): Promise<Required<Pick<Ids, 'execution' | 'chat' | 'session' | 'approval' | 'message'>>> {
      const run = await does('agents.execute', { message: `${canary} message`, background: true, ...input })
      await idle()
      return this.approved({ canary }, run)
    },
    async approved({ canary }: Marks, run: { executionId: string; chatId: string; sessionId: string }) {
      const { executionId, chatId, sessionId } = run
      const call = {
        step: 1,
        position: 0,
        toolUseId: newId(),
        tool: `${canary}_tool`,
        input: `{"a":"${canary} input"}`,
      }
      const createdAt = clock.now()
      const times = { createdAt, expiresAt: new Date(createdAt.getTime() + 3_600_000) }
      const data = { id: newId(), organizationId: who.organizationId, executionId, chatId, ...call, ...times }
      const { id } = await db.approval.create({ data: { ...data, status: 'pending' } })
      const { id: message } = await db.message.findFirstOrThrow({ where: { executionId } })
      return { execution: executionId, chat: chatId, session: sessionId, approval: id, message }
    },
    /** The name that another protocol's client gave a session. */
    async conversation({ canary }: Marks, agentId: string, sessionId: string): Promise<void> {
      const { organizationId, userId } = who
      const times = { createdAt: clock.now(), updatedAt: clock.now() }
      const data = { organizationId, userId, agentId, protocol: 'openai', name: `${canary} conversation`, sessionId }
      await db.conversationName.create({ data: { ...data, ...times }, select: { name: true } })
    },
  }
}

/** Creates one thing of each kind, connected to each other where possible. */
export async function everything(server: TestServer, who: Member, canary: string): Promise<Required<Ids>> {
  const make = maker(server, who)
  const marks = { canary }
  const [agent, skill, mcp, media, key, browser] = await Promise.all([
    make.agent(marks),
    make.skill(marks),
    make.mcp(marks),
    make.media(marks),
    make.key(marks),
    make.browser({ canary: 'a' }),
  ])
  const space = await make.space(marks, { addAgents: [agent], addSkills: [skill], addMcps: [mcp] })
  await make.does('files.write', { id: space, path: 'kept.txt', content: canary })
  const run = await make.run(marks, { id: agent, spaceId: space, mediaIds: [media] })
  await make.conversation(marks, agent, run.session)
  const mission = await make.mission(marks, { agentId: agent, spaceId: space })
  const task = await make.task(marks, { spaceId: space })
  const { service, serviceKey } = await make.service(marks)
  const invitation = await make.invitation(marks)
  const { webhook, delivery } = await make.webhook(marks)
  await make.does('agents.update', { id: agent, skillIds: [skill], mcpInstanceIds: [mcp] })
  const { organizationId: organization, userId: user } = who
  return {
    agent,
    skill,
    mcp,
    media,
    key,
    browser,
    space,
    mission,
    task,
    organization,
    user,
    invitation,
    service,
    serviceKey,
    webhook,
    delivery,
    ...run,
  }
}

/** Requests the bytes of a file: `GET /media/{id}/content` is no procedure. */
export const contentOf = (server: TestServer, id: string, token: string) =>
  request(server, 'GET', `/api/v1/media/${id}/content`, { token })

type Row = Record<string, unknown>
type ModelField = { name: string; type: string; isId: boolean; relationFromFields?: readonly string[] }
type Model = { fields: ModelField[]; primaryKey: { fields: string[] } | null }

/** Every table with its columns and references. */
export const MODELS = Object.entries(getDatamodel().datamodel.models as unknown as Record<string, Model>)

/** The time and the networks of a key's use do not count as changes, because they are written after the request. */
const RESTLESS = ['lastUsedAt', 'TokenAddress']

/** The columns of the primary key. */
export const keyOf = ({ fields, primaryKey }: Model): string[] =>
  primaryKey?.fields ?? fields.flatMap((field) => (field.isId ? field.name : []))

/** Returns every row of the database as text, by table and key. */
export async function rowsOf({ service }: TestServer): Promise<Map<string, string>> {
  const rows = new Map<string, string>()
  for (const [name, model] of MODELS) {
    if (RESTLESS.includes(name)) continue
    const key = keyOf(model)
    const table = Prisma.raw(`"${name}"`)
    for (const row of await service.deps.db.$queryRaw<Row[]>(Prisma.sql`SELECT * FROM ${table}`)) {
      const texts = Object.entries(row).flatMap(([column, value]) => (RESTLESS.includes(column) ? [] : textOf(value)))
      rows.set(`${name} ${key.map((column) => row[column]).join(' ')}`, texts.join('|'))
    }
  }
  return rows
}

function textOf(value: unknown): string {
  if (value instanceof Uint8Array) return Buffer.from(value).toString('base64')
  return typeof value === 'object' ? JSON.stringify(value) : String(value)
}

/** Lists the given rows that have changed since, and new rows that contain one of these ids. */
export async function changesIn(
  server: TestServer,
  before: ReadonlyMap<string, string>,
  places: ReadonlySet<string>,
  ids: readonly string[],
): Promise<string[]> {
  const now = await rowsOf(server)
  const changed = [...places].filter((place) => now.get(place) !== before.get(place))
  const added = [...now].filter(([place, row]) => !before.has(place) && ids.some((id) => row.includes(id)))
  return [
    ...changed.map((place) => `${place}: ${before.get(place)} -> ${now.get(place)}`),
    ...added.map(([place, row]) => `${place}: new: ${row}`),
  ]
}
