import { getNamedType, isIntrospectionType, isObjectType } from 'graphql'
import { beforeAll, describe, expect, test } from 'vitest'
import { Prisma } from '../../src/db/client.ts'
import { schema } from '../../src/graphql/schema.ts'
import { newId } from '../../src/lib/id.ts'
import { subscribe } from '../graphql/support.ts'
import { type Api, apis, procedures } from '../support/api.ts'
import { signedIn } from '../support/browser-session.ts'
import {
  callRoot,
  documentOf,
  type GraphQLApiAnswer,
  inputsOf,
  NODE,
  NODES,
  ROOTS,
  type Root,
  rootsOf,
} from '../support/graphql-api.ts'
import { choicesOf, type Input, isList as isMany, shapeOf, takesId } from '../support/inputs.ts'
import { onPostgres } from '../support/postgres-shared.ts'
import { asToken, credentialHeaders } from '../support/rest.ts'
import { sample } from '../support/sample.ts'
import { type Member, startServer } from '../support/server.ts'
import { use } from '../support/use.ts'
import {
  changesIn,
  contentOf,
  everything,
  type Ids,
  inputWith,
  type Kind,
  keyOf,
  kindsOf,
  MODELS,
  maker,
  neverWas,
  rowsOf,
} from './fixtures.ts'

/**
 * The isolation matrix: every field of every procedure that takes an id, with ids of another user's things, as every
 * kind of foreign caller, on every API. The fields come from the router; an unlisted kind of id fails the test. The
 * APIs call the same procedures, so each run tries each field with each caller on one of them (`sample`).
 */

type Procedure = string
type Field = { procedure: Procedure; field: string; kind: Kind; beside?: 'session' | 'agent' }

const FIELDS: Field[] = Object.keys(procedures).flatMap((procedure) =>
  Object.keys(shapeOf(procedure))
    .filter(takesId)
    .flatMap((field) => kindsOf(procedure, field).map((kind) => ({ procedure, field, kind }))),
)

/** Chats and sessions once more: beside an agent that anyone may run, and beside a session of the caller. */
const BESIDE: Field[] = FIELDS.filter(
  ({ procedure }) => procedure !== 'chats.send' && 'sessionId' in shapeOf(procedure),
).flatMap((field) => {
  if (field.kind === 'session') return [{ ...field, beside: 'agent' }]
  return field.kind === 'chat'
    ? [
        { ...field, beside: 'agent' },
        { ...field, beside: 'session' },
      ]
    : []
})

type Answer = { status: number; text: string }
type AnyApi = Api | 'GraphQL'
/** REST and tRPC call the same procedures, so the database makes no difference between them. */
const ALL_APIS: readonly AnyApi[] = onPostgres ? ['REST', 'GraphQL'] : ['REST', 'tRPC', 'GraphQL']
/** The same holds for GraphQL where ids are looked up. Relations between rows are GraphQL's own. */
const APIS_OF_IDS = onPostgres ? (['REST'] as const) : ALL_APIS

const server = await use(startServer())
beforeAll(async () => {
  await build()
})

const nameOf = ({ procedure, field, kind, beside }: Field): string => [procedure, field, kind, beside].join(' ')

/** Returns whether an API has the field. */
const hasField = (api: AnyApi, { procedure, field }: Field): boolean =>
  api !== 'GraphQL' || rootsOf(procedure).some((root) => field in inputsOf(root))

/** Each field on each API. In the sample is each field, and each procedure on each API. */
const onApis = (fields: readonly Field[]): { api: AnyApi; field: Field }[] =>
  sample(
    ALL_APIS.flatMap((api) => fields.flatMap((field) => (hasField(api, field) ? { api, field } : []))),
    ({ api, field }) => [nameOf(field), `${api} ${field.procedure}`],
  )

/** Returns the answers of a procedure on an API. Returns none if the API lacks the field. */
async function call(api: AnyApi, procedure: string, input: Input, token: string, field?: string): Promise<Answer[]> {
  if (api !== 'GraphQL') return [await callOn(api, procedure, input, token)]
  const roots = rootsOf(procedure).filter((root) => !field || field in inputsOf(root))
  return Promise.all(
    roots.map(async (root) => {
      const { status, data, errors } = await callRoot(server, root, input, { token, depth: field ? 1 : 3 })
      return { status, text: JSON.stringify({ data, errors }) }
    }),
  )
}

async function callOn(api: Api, procedure: string, input: Input, token: string): Promise<Answer> {
  const { status, body } = await apis[api](server, procedure, input, { token })
  return { status, text: JSON.stringify(body) }
}

/** Replaces the values that differ between requests: the request id, the given id, and times. */
const plain = ({ status, text }: Answer, id: string): string =>
  `${status} ${text}`
    .replaceAll(id, '<id>')
    .replace(/"requestId":"[\w-]+"/g, '"requestId":"…"')
    .replace(/"\d{4}-\d\d-\d\dT[\d:.]+Z"/g, '"<time>"')

async function inParallel<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  const rest = items.values()
  await Promise.all(
    Array.from({ length: 8 }, async () => {
      for (const item of rest) await work(item)
    }),
  )
}

/** Sets of one member's things, by the way in which they are closed to others. */
const SETS = ['shared', 'ofAgent', 'inSpace', 'ofMission', 'inChat', 'own'] as const
type SetName = (typeof SETS)[number]
const victims = {} as Record<SetName, Ids>
const open = {} as { publicAgent: string; unlistedAgent: string; skill: string }
const canaryOf = (set: SetName) => `canary-${set.toLowerCase()}`

/** Callers of foreign things; `of` lists the sets that are closed to them. */
type Foreigner = 'outsider' | 'twofold' | 'colleague' | 'admin' | 'revoked'
const CLOSED: Record<Foreigner, { who: string; of: readonly SetName[] }> = {
  colleague: { who: 'another member', of: ['ofAgent', 'inSpace', 'ofMission', 'inChat', 'own'] },
  outsider: { who: 'the owner of another organization', of: SETS },
  admin: { who: 'an admin, to whom private spaces alone are open', of: ['ofAgent', 'ofMission', 'inChat', 'own'] },
  twofold: { who: 'the same user, in a browser, in another organization', of: SETS },
  revoked: { who: 'somebody whose membership has ended', of: ['shared', 'ofAgent'] },
}
/** To a database they differ only in the values of the same filters, so one inside and one outside suffice. */
const FOREIGNERS: Foreigner[] = onPostgres ? ['colleague', 'outsider'] : (Object.keys(CLOSED) as Foreigner[])
const people = {} as Record<Foreigner | 'victim', Member>
const owned = {} as Record<Foreigner, Required<Ids>>

/** Tables and keys of the rows that the victim has created. */
const places = new Set<string>()

async function build(): Promise<void> {
  const organization = 'Victim'
  const email = 'victim@example.com'
  people.victim = await server.member({ organization, email })
  people.outsider = await server.member({ organization: 'Other', role: 'owner' })
  people.twofold = await server.member({ organization: 'Second', email, role: 'owner' })
  people.colleague = await server.member({ organization })
  people.admin = await server.member({ organization, role: 'admin' })
  people.revoked = await server.member({ organization })

  const make = maker(server, people.victim)
  const shared = await everything(server, people.victim, canaryOf('shared'))
  // A user who is in no other organization.
  const { browser: _browser, ...ofAll } = shared
  victims.shared = { ...ofAll, user: people.admin.userId }

  const own = { visibility: 'private', canary: canaryOf('own') } as const
  // Belongs to a user of one organization, because a browser session is valid in all organizations of its user.
  const browser = await maker(server, await server.member({ organization })).browser(own)
  victims.own = { skill: await make.skill(own), key: await make.key(own), browser }

  const ofAgent = { visibility: 'private', canary: canaryOf('ofAgent') } as const
  const agent = await make.agent(ofAgent)
  const mission = await make.mission({ canary: ofAgent.canary }, { agentId: agent })
  victims.ofAgent = { agent, mission, ...(await make.run(ofAgent, { id: agent })) }

  const name = 'open'
  open.publicAgent = await make.agent(
    { visibility: 'public', canary: name },
    { systemPrompt: 'hidden', tags: ['open'] },
  )
  const inSpace = { visibility: 'private', canary: canaryOf('inSpace') } as const
  const space = await make.space(inSpace)
  const inSpaceRun = await make.run(inSpace, { id: open.publicAgent, spaceId: space })
  const inSpaceMission = await make.mission({ canary: inSpace.canary }, { agentId: shared.agent, spaceId: space })
  victims.inSpace = { space, mission: inSpaceMission, ...inSpaceRun }

  const ofMission = { visibility: 'private', canary: canaryOf('ofMission') } as const
  const id = await make.mission(ofMission, { agentId: shared.agent, spaceId: shared.space })
  const begun = await make.does('missions.run', { id })
  await make.idle()
  victims.ofMission = { mission: id, ...(await make.approved(ofMission, begun)) }

  // References from shared things to closed ones.
  const guest = { canary: canaryOf('inChat') }
  const { chat: _, ...inChat } = await make.run(guest, { id: agent, chatId: shared.chat })
  victims.inChat = inChat
  await make.run(guest, { id: agent, chatId: shared.chat, parentExecutionId: shared.execution })
  await make.does('spaces.update', { id: shared.space, addAgents: [agent], addSkills: [victims.own.skill] })
  await make.does('agents.update', {
    id: shared.agent,
    subagentIds: [agent],
    skillIds: [shared.skill, victims.own.skill],
  })
  await make.does('tasks.update', { id: shared.task, assignTo: await make.agent(ofAgent) })

  // Archived rows in the same tables, which are hidden from all callers.
  const archived = await make.space({ canary: 'archived' })
  await make.run({ canary: 'archived' }, { id: shared.agent, spaceId: archived })
  await make.does('spaces.delete', { id: archived })

  const unlisted = { visibility: 'unlisted', systemPrompt: 'hidden' }
  open.unlistedAgent = await make.agent({ canary: name }, unlisted)
  open.skill = await make.skill({ visibility: 'public', canary: name })

  // Totals of this organization only. Foreigners may well change other totals.
  const ofOthers = (place: string) => place.startsWith('Total ') && !place.includes(people.victim.organizationId)
  for (const place of (await rowsOf(server)).keys()) if (!ofOthers(place)) places.add(place)
  for (const foreigner of FOREIGNERS) owned[foreigner] = await everything(server, people[foreigner], `own-${foreigner}`)
  const { secret } = await signedIn(server, people.twofold.userId)
  people.twofold.token = asToken(secret, people.twofold.organizationId)
  const { organizationId, userId } = people.revoked
  await server.service.deps.db.membership.deleteMany({ where: { organizationId, userId } })
  attacks = sampleAttacks()
}

type Attack = { foreigner: Foreigner; api: AnyApi; field: Field; set: SetName; id: string }
let attacks: Attack[]

/**
 * Combines callers, APIs, fields and foreign things. In the sample is each field on each API, from inside the
 * organization and from outside, each procedure with each caller, and each kind of thing with each caller and set.
 */
const sampleAttacks = (): Attack[] =>
  sample(
    FOREIGNERS.flatMap((foreigner) =>
      CLOSED[foreigner].of.flatMap((set) =>
        APIS_OF_IDS.flatMap((api) =>
          [...FIELDS, ...BESIDE].flatMap((field) => {
            const id = victims[set][field.kind]
            return id !== undefined && hasField(api, field) ? [{ foreigner, api, field, set, id }] : []
          }),
        ),
      ),
    ),
    ({ foreigner, api, field, set }) => [
      ...[api, isMember(foreigner) ? 'inside' : 'outside'].map((of) => `${nameOf(field)} ${of}`),
      `${field.procedure} ${foreigner}`,
      `${field.kind} ${foreigner} ${set}`,
    ],
  )

/** Runs the work. It must not change the victim's rows, and no new row may mention their ids. */
async function untouched(work: () => Promise<void>): Promise<void> {
  const before = await rowsOf(server)
  await work()
  const ids = Object.values(victims).flatMap(({ organization: _, user: __, ...of }) => Object.values(of))
  const changes = await changesIn(server, before, places, ids)
  expect(changes).toEqual([])
}

/** Fields that find nothing without an error: filters of lists, and removals of absent things. */
const isTolerant = ({ procedure, field }: Field): boolean =>
  field.startsWith('remove') || (procedures[procedure]?._def.type === 'query' && field !== 'id' && field !== 'orgId')

const isMember = (foreigner: Foreigner): boolean => foreigner === 'colleague' || foreigner === 'admin'

const canariesIn = (foreigner: Foreigner, text: string): string[] =>
  [...CLOSED[foreigner].of.map(canaryOf), ...(isMember(foreigner) ? [] : ['hidden'])].filter((canary) =>
    text.includes(canary),
  )

/** The canaries and the ids of closed things, except the organization, which may be one of the user's others. */
const tracesIn = (foreigner: Foreigner, text: string): string[] => {
  const ids = CLOSED[foreigner].of.flatMap((set) =>
    Object.entries(victims[set]).flatMap(([kind, id]) => (kind !== 'organization' && text.includes(id) ? kind : [])),
  )
  return [...canariesIn(foreigner, text), ...ids.map((kind) => `the id of the ${kind}`)]
}

/** Answers for ids that never existed, which answers for foreign ids must equal. */
const nowhere = new Map<string, Promise<string[]>>()

/** Further fields of the input. */
function besides({ procedure, beside }: Field, own: Ids): Input {
  if (beside === 'session') return { sessionId: own.session }
  return beside ? { [procedure === 'agents.execute' ? 'id' : 'characterId']: open.publicAgent } : {}
}

/** Returns the problems with one field and one foreign id. */
async function attack(api: AnyApi, foreigner: Foreigner, field: Field, id: string): Promise<string[]> {
  const { procedure, field: name, kind, beside } = field
  const { token } = people[foreigner]
  const own = owned[foreigner]
  const never = neverWas(kind)
  const ask = (value: string) => {
    const input = { ...inputWith(procedure, name, value, own), ...besides(field, own) }
    return call(api, procedure, input, token, name)
  }
  const place = [api, foreigner, procedure, name, kind, beside].join(' ')
  const asked = nowhere.get(place) ?? ask(never).then((answers) => answers.map((answer) => plain(answer, never)))
  nowhere.set(place, asked)
  const [nobodys, theirs] = await Promise.all([asked, ask(id)])
  return theirs.flatMap((answer, index) => {
    const where = `${procedure}.${name} (${kind})`
    const expected = nobodys[index]
    const got = plain(answer, id)
    const found = canariesIn(foreigner, answer.text)
    const succeeded = api === 'GraphQL' ? !/"errors":|:null/.test(answer.text) : answer.status === 200
    // An admin cancels any run of the organization, but sees only its state (contract-2.md section 8.3).
    const isControl = foreigner === 'admin' && procedure === 'executions.cancel'
    return [
      ...(got === expected || isControl ? [] : [`${where}: ${got} is not ${expected}`]),
      ...found.map((canary) => `${where}: tells ${canary}`),
      ...(succeeded && !isTolerant(field) ? [`${where}: succeeds: ${got}`] : []),
    ]
  })
}

/** Lists for admins. The audit log names the targets of all changes, by their ids only. */
const OF_ADMINS: ReadonlySet<string> = new Set(['audit.list', 'webhooks.list'])

/** Returns whether every field is optional. */
const isList = (procedure: string) => Object.values(shapeOf(procedure)).every((field) => field.isOptional())

/** Reads everything as a foreigner. Returns the closed things that appear. */
async function read(api: AnyApi, foreigner: Foreigner, procedure: string, own: Ids): Promise<string[]> {
  const input = inputWith(procedure, null, undefined, own)
  // The APIs pass on the same filters.
  const filters = api === 'REST' ? choicesOf(procedure) : []
  const asked = [input, ...filters.map((filter) => ({ ...input, ...filter }))]
  const answers = await Promise.all(asked.map((one) => call(api, procedure, one, people[foreigner].token)))
  return answers.flat().flatMap(({ text }) => [
    ...(OF_ADMINS.has(procedure) ? canariesIn : tracesIn)(foreigner, text).map(
      (trace) => `${procedure} tells ${trace}: ${text}`,
    ),
    // A failing list shows nothing, and so hides a leak in another selection.
    ...(isList(procedure) && foreigner !== 'revoked' && !OF_ADMINS.has(procedure) && text.includes('"errors":[')
      ? [`${procedure} fails: ${text}`]
      : []),
  ])
}

/** Asks `node` for an id of a kind. */
const askNode = (foreigner: Foreigner, kind: string, id: string, depth = 1) =>
  callRoot(server, NODE, { id }, { token: people[foreigner].token, depth, on: NODES.get(kind)! })

/** Reads root fields without a procedure: everything that GraphQL shows below the caller's own things. */
async function readRoots(foreigner: Foreigner, own: Ids): Promise<string[]> {
  const { token } = people[foreigner]
  const others = ROOTS.filter(({ operation, procedure }) => operation === 'query' && procedure === null)
  const ofOwn = Object.entries(own).filter(([kind]) => NODES.has(kind))
  const answers = await Promise.all([
    ...others.filter((root) => root !== NODE).map((root) => callRoot(server, root, {}, { token, depth: 3 })),
    ...ofOwn.map(([kind, id]) => askNode(foreigner, kind, id, 3)),
  ])
  return answers.flatMap((answer) => {
    const text = JSON.stringify(answer)
    return tracesIn(foreigner, text).map((trace) => `${trace}: ${text}`)
  })
}

const ofType = (type: string) => Object.keys(procedures).filter((name) => procedures[name]!._def.type === type)
const READS = [...ofType('query'), ...ofType('subscription')]

/** GraphQL's subscriptions to the changes of rows. */
const CHANGES = ROOTS.filter(({ field }) => field.name.endsWith('Changes'))

type Changing = 'approval' | 'chat' | 'task'

/** Returns the kind of the rows that a root field shows. */
const kindOf = ({ field }: Root) => getNamedType(field.type).name.toLowerCase() as Changing

type ChangesStream = {
  api: AnyApi
  kind: Changing
  open: (token: string, signal: AbortSignal) => AsyncIterable<string>
}

/** Every stream of the changes of rows. */
const STREAMS: ChangesStream[] = [
  ...CHANGES.map((root) => ({ api: 'GraphQL' as const, kind: kindOf(root), open: openRoot(root) })),
  ...(['task', 'approval'] as const).flatMap((kind) => [
    { api: 'REST' as const, kind, open: openPath(`/api/v1/${kind}s/events`) },
    ...(onPostgres ? [] : [{ api: 'tRPC' as const, kind, open: openPath(`/trpc/${kind}s.changes`) }]),
  ]),
]

function openRoot(root: Root): ChangesStream['open'] {
  return async function* (token, signal) {
    for await (const event of subscribe(server, documentOf(root, {}, 1), {}, { token, signal })) {
      yield JSON.stringify(event)
    }
  }
}

function openPath(path: string): ChangesStream['open'] {
  return async function* (token, signal) {
    const { body } = await fetch(server.url + path, { headers: credentialHeaders(server, token), signal })
    yield* body!.pipeThrough(new TextDecoderStream())
  }
}

/** Their fields that take an id, with the kind of id. */
const FOLLOWED = CHANGES.flatMap((root) =>
  Object.keys(inputsOf(root))
    .filter(takesId)
    .map((name) => ({ root, name, kind: name === 'id' ? kindOf(root) : (kindsOf('', name)[0] as Kind) })),
)

const FORBIDDEN = "You don't have permission to access this resource"

/** The fields that name the target of a mutation, as opposed to other references. */
const isTarget = (procedure: string, field: string): boolean =>
  field === (procedure.startsWith('client.') ? 'spaceId' : 'id') || procedure.endsWith('Env')

/**
 * Things that any member may write, also another member's (contract.md section 2): tasks, files, and one's own runs.
 */
const isAnybodys = (procedure: string) =>
  /^(tasks|files)\.|\.(execute|send|rerun)$|^executions\.create$/.test(procedure)

describe('another member, given things that all members see', () => {
  const writes = ofType('mutation').filter((procedure) => !isAnybodys(procedure))
  const fields = FIELDS.filter(({ procedure, field }) => writes.includes(procedure) && isTarget(procedure, field))

  test.skipIf(onPostgres).each(ALL_APIS)('%s: changes nothing: 403', async (api) => {
    const { token } = people.colleague
    const problems: string[] = []
    await untouched(() =>
      inParallel(fields, async ({ procedure, field, kind }) => {
        const id = kind === 'organization' ? people.victim.organizationId : victims.shared[kind]
        if (kind === 'key' || kind === 'browser') return
        // Every member has a connection of their own (contract-2.md section 2.13).
        if (procedure === 'mcps.connect' || procedure === 'mcps.disconnect') return
        for (const { text } of await call(
          api,
          procedure,
          inputWith(procedure, field, id, owned.colleague),
          token,
          field,
        )) {
          if (!text.includes(FORBIDDEN)) problems.push(`${procedure}.${field}: ${text}`)
        }
      }),
    )
    expect(problems).toEqual([])
  })
})

test.each(FOREIGNERS.filter((foreigner) => foreigner !== 'revoked'))(
  '%s: totals count visible rows only',
  async (who) => {
    const make = maker(server, people[who])
    const { chat, space } = isMember(who) ? victims.shared : owned[who]
    const { messages } = await make.does('chats.messages', { id: chat })
    expect((await make.does('chats.get', { id: chat })).chat.messageCount).toBe(messages.length)
    const { chats } = await make.does('chats.list', { spaceId: space })
    expect((await make.does('spaces.get', { id: space })).space.chatCount).toBe(chats.length)
    for (const procedure of ofType('query').filter((name) => name.endsWith('.list') && !OF_ADMINS.has(name))) {
      const shape = shapeOf(procedure)
      const input = { ...inputWith(procedure, null, undefined, owned[who]), ...('count' in shape && { count: 'true' }) }
      const answer = await make.does(procedure, input)
      const totalOf = ({ total, count }: typeof answer) => total ?? count
      if (totalOf(answer) === undefined) continue
      expect([procedure, totalOf(answer)]).toEqual([procedure, rowsIn(answer)])
      if (!('limit' in shape) || !rowsIn(answer)) continue
      const page = await make.does(procedure, { ...input, limit: 1 })
      expect([procedure, totalOf(page), rowsIn(page)]).toEqual([procedure, rowsIn(answer), 1])
    }
  },
)

/** Returns the number of rows of a list, which may be grouped. */
const rowsIn = (value: unknown): number =>
  Array.isArray(value)
    ? value.length
    : Object.values(typeof value === 'object' && value ? value : {}).reduce((sum, of) => sum + rowsIn(of), 0)

/** Returns whether the id stands in the path. An empty id makes that another path. */
const isInPath = ({ procedure, field }: Field): boolean => {
  const { type, meta } = procedures[procedure]!._def
  return type === 'subscription' || (meta.openapi?.path.includes(`{${field}}`) ?? false)
}

const EMPTY = onApis(FIELDS.filter(({ procedure, field }) => !isMany(shapeOf(procedure)[field]!))).filter(
  ({ api, field }) => !(api === 'REST' && isInPath(field)),
)

test.skipIf(onPostgres).each(ALL_APIS)('%s: an empty id counts as unknown or missing, never as absent', async (api) => {
  const fields = EMPTY.flatMap((one) => (one.api === api ? one.field : []))
  expect(fields.length).toBeGreaterThan(10)
  const problems: string[] = []
  const before = await rowsOf(server)
  await inParallel(fields, async ({ procedure, field, kind }) => {
    const never = neverWas(kind)
    const ask = async (id: string) => {
      const input = inputWith(procedure, field, id, owned.outsider)
      const answers = await call(api, procedure, input, people.outsider.token, field)
      return answers.map((answer) => plain(answer, never).replace('an empty id', '<id>'))
    }
    const [empty, nobodys] = [await ask(''), await ask(never)]
    for (const [index, reply] of empty.entries()) {
      if (reply === nobodys[index] || reply.includes(`Missing required field: ${field}`)) continue
      problems.push(`${procedure}.${field}: ${reply} is not ${nobodys[index]}`)
    }
  })
  expect(problems).toEqual([])
  expect(await rowsOf(server)).toEqual(before)
})

test('a space lists only its reachable agents and skills', async () => {
  const { space } = await maker(server, people.colleague).does('spaces.get', { id: victims.shared.space })
  const { assignedAgents, skillIds, agentRefs, skillRefs } = space
  expect({ assignedAgents, skillIds }).toEqual({
    assignedAgents: [victims.shared.agent],
    skillIds: [victims.shared.skill],
  })
  expect([agentRefs, skillRefs].map((refs) => refs.length)).toEqual([1, 1])
})

test('a copy of an agent omits everything that its maker cannot reach', async () => {
  const copy = await maker(server, people.colleague).does('agents.create', {
    name: 'Copy',
    basedOnAgentId: victims.shared.agent,
  })
  const { subagentIds, skillIds } = copy.agent
  expect({ subagentIds, skillIds }).toEqual({ subagentIds: [], skillIds: [victims.shared.skill] })
})

/**
 * Reads as each caller on each API, of the caller's own things and, as a member, of shared ones. In the sample is each
 * procedure on REST with each caller; on GraphQL, which has its own relations, with each member and one other; and once
 * on tRPC.
 */
const READINGS = sample(
  ALL_APIS.flatMap((api) =>
    FOREIGNERS.flatMap((foreigner) =>
      READS.filter((procedure) => api !== 'GraphQL' || rootsOf(procedure).length).flatMap((procedure) =>
        (isMember(foreigner) ? [false, true] : [false]).map((ofShared) => ({ api, foreigner, procedure, ofShared })),
      ),
    ),
  ),
  ({ api, foreigner, procedure, ofShared }) => [
    `${api} ${procedure}`,
    ...(api === 'REST' ? [`${api} ${procedure} ${foreigner} ${ofShared}`] : []),
    ...(api === 'GraphQL' ? [`${api} ${procedure} ${isMember(foreigner) ? foreigner : 'outside'} ${ofShared}`] : []),
  ],
)

describe.each(FOREIGNERS.map((foreigner) => [CLOSED[foreigner].who, foreigner] as const))('%s', (_, foreigner) => {
  const { of } = CLOSED[foreigner]

  test.each(APIS_OF_IDS)('%s: finds nothing by any foreign id, as if it never existed', async (api) => {
    const mine = attacks.filter((one) => one.api === api && one.foreigner === foreigner)
    expect(mine.length).toBeGreaterThan(10)
    const problems: string[] = []
    await untouched(() =>
      inParallel(mine, async ({ field, id }) => {
        problems.push(...(await attack(api, foreigner, field, id)))
      }),
    )
    expect(problems).toEqual([])
  })

  test.each(ALL_APIS)('%s: sees no trace of foreign things in readable answers', async (api) => {
    const own = owned[foreigner]
    const traces: string[] = []
    const shared = { ...own, ...victims.shared }
    if (api === 'GraphQL') traces.push(...(await readRoots(foreigner, isMember(foreigner) ? shared : own)))
    await inParallel(READINGS, async (reading) => {
      if (reading.api !== api || reading.foreigner !== foreigner) return
      traces.push(...(await read(api, foreigner, reading.procedure, reading.ofShared ? shared : own)))
    })
    expect(traces).toEqual([])
  })

  test('gets no foreign file', async () => {
    for (const set of of) {
      const id = victims[set].media
      if (!id) continue
      const [theirs, nobodys] = await Promise.all(
        [id, neverWas('media')].map((of) => contentOf(server, of, people[foreigner].token)),
      )
      expect({ ...theirs!.body, requestId: '' }).toEqual({ ...nobodys!.body, requestId: '' })
      expect(theirs!.status).toBe(foreigner === 'revoked' ? 403 : 404)
    }
  })

  test('GraphQL: node finds nothing', async () => {
    const found: string[] = []
    for (const [kind, id] of of.flatMap((set) => Object.entries(victims[set]))) {
      if (!NODES.has(kind)) continue
      const [theirs, nobodys] = [
        await askNode(foreigner, kind, id),
        await askNode(foreigner, kind, neverWas(kind as Kind)),
      ]
      if (JSON.stringify(plainErrors(theirs)) !== JSON.stringify(plainErrors(nobodys)))
        found.push(`${kind}: ${JSON.stringify(theirs)}`)
    }
    expect(found).toEqual([])
  })
})

const plainErrors = ({ data, errors }: GraphQLApiAnswer) => ({
  data,
  errors: errors?.map(({ message, path, extensions: { requestId: _, ...rest } }) => ({ message, path, ...rest })),
})

/** Returns answers of root fields without a procedure that differ between foreign ids and one that never existed. */
async function differing(foreigner: Foreigner, root: Root, name: string, ids: readonly string[]): Promise<string[]> {
  const ask = async (id: string): Promise<string> => {
    const { data, errors } = await callRoot(server, root, { [name]: id }, { token: people[foreigner].token, depth: 1 })
    return plain({ status: 200, text: JSON.stringify({ data, errors }) }, id)
  }
  const [nobodys, ...theirs] = await Promise.all([neverWas('agent'), ...ids].map(ask))
  return theirs.filter((answer) => answer !== nobodys)
}

describe('subscriptions to changes', () => {
  const followed = FOREIGNERS.flatMap((foreigner) => {
    const { who, of } = CLOSED[foreigner]
    return FOLLOWED.map((one) => ({ ...one, foreigner, who, of }))
  })

  test.concurrent.each(followed)(
    '$root.field.name of a $kind tells $who nothing ($name)',
    async ({ root, name, kind, foreigner, of }) => {
      const ids = of.flatMap((set) => victims[set][kind] ?? [])
      expect(await differing(foreigner, root, name, ids)).toEqual([])
    },
  )

  const readers = FOREIGNERS.filter((foreigner) => foreigner !== 'revoked')
  const rows = readers.flatMap((foreigner) =>
    STREAMS.map((stream) => ({ ...stream, foreigner, who: CLOSED[foreigner].who })),
  )

  test.each(rows)('$api: the changes of each $kind tell $who nothing of others', async ({ open, kind, foreigner }) => {
    const { token } = people[foreigner]
    const end = new AbortController()
    let output = ''
    const reading = (async () => {
      for await (const text of open(token, end.signal)) output += text
    })().catch((error) => {
      if (!end.signal.aborted) throw error
    })
    // A reader that gets its own changes is following.
    await until(async () => {
      await change(kind, people[foreigner], owned[foreigner][kind], `begin ${newId()}`)
      return output.includes('begin')
    })
    for (const set of CLOSED[foreigner].of) {
      if (victims[set][kind]) await change(kind, people.victim, victims[set][kind], `${canaryOf(set)} ${newId()}`)
    }
    await change(kind, people[foreigner], owned[foreigner][kind], 'the end')
    await until(async () => output.includes('the end'))
    end.abort()
    await reading
    expect(tracesIn(foreigner, output)).toEqual([])
  })
})

/** Changes a text of a row, as its owner. */
async function change(kind: Changing, who: Member, id: string, text: string): Promise<void> {
  if (kind !== 'approval') return void (await maker(server, who).does(`${kind}s.update`, { id, title: text }))
  const { db, bus } = server.service.deps
  await db.approval.updateMany({ where: { id }, data: { reason: text } })
  bus.publish('approval', [id])
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  while (!(await isSo())) await new Promise((resolve) => setTimeout(resolve, 20))
}

/** References to rows of an organization, with their columns. */
const REFERENCES = MODELS.flatMap(([table, model]) =>
  model.fields.flatMap(({ type, relationFromFields: columns = [] }) => {
    if (!columns.length) return []
    const [, target] = MODELS.find(([name]) => name === type) ?? []
    // A membership has no id, and ends what refers to it.
    const isOwned =
      type !== 'User' && type !== 'Membership' && target?.fields.some(({ name }) => name === 'organizationId')
    return isOwned && model.fields.some(({ name }) => name === 'organizationId')
      ? [{ table, model, target: type, columns }]
      : []
  }),
)

test.each(REFERENCES)('the database itself refuses a foreign $target in $table ($columns)', async (reference) => {
  const { table, model, target, columns } = reference
  const { db } = server.service.deps
  const [organization, column, ...others] = columns
  // A reference by the id alone would accept any organization's row.
  expect([/organizationId$/i.test(organization ?? ''), others]).toEqual([true, []])
  const name = (of: string | undefined) => Prisma.raw(`"${of}"`)
  const whose = (of: string, member: Member, owner = 'organizationId') =>
    Prisma.sql`SELECT * FROM ${name(of)} WHERE ${name(owner)} = ${member.organizationId} LIMIT 1`
  const [row] = await db.$queryRaw<Record<string, string>[]>(whose(table, people.outsider, organization))
  const [foreign] = await db.$queryRaw<{ id: string }[]>(whose(target, people.victim))
  const its = keyOf(model).map((key) => Prisma.sql`${name(key)} = ${row?.[key]}`)
  const update = Prisma.sql`UPDATE ${name(table)} SET ${name(column)} = ${foreign?.id} WHERE ${Prisma.join(its, ' AND ')}`
  const clear = Prisma.sql`DELETE FROM ${name(table)} WHERE "organizationId" = ${people.victim.organizationId}`
  const refused = await db.$executeRaw(update).then(String, String)
  // The unique key is taken already. Without that row the reference must be refused, in a transaction that rolls back.
  const alone = () =>
    db
      .$transaction(async (tx) => {
        await tx.$executeRaw(clear)
        await tx.$executeRaw(update)
        throw new Error('It was taken')
      })
      .catch(String)
  expect(/unique/i.test(refused) ? await alone() : refused).toMatch(/foreign.?key/i)
})

/** Other organizations may run and show `public` and `unlisted` things, and read public skills (sections 2 and 7). */
const OPEN: Record<'agent' | 'skill', Record<string, number>> = {
  agent: {
    'agents.getPublic.id': 200,
    'agents.execute.id': 200,
    'executions.create.agentId': 200,
    'executions.create.characterId': 200,
    'client.execute.characterId': 200,
    'chats.create.agentId': 200,
    'missions.create.agentId': 200,
    'missions.create.characterId': 200,
    'missions.update.agentId': 200,
    'missions.update.characterId': 200,
  },
  skill: {
    'skills.get.id': 200,
    'skills.update.id': 403,
    'skills.delete.id': 403,
    'agents.create.skillIds': 200,
    'agents.update.skillIds': 200,
    'spaces.create.addSkills': 200,
    'spaces.create.skillIds': 200,
    'spaces.update.addSkills': 200,
  },
}

describe('resources that are open across organizations are open for this only', () => {
  const things = [
    ['a public agent', 'agent', 'publicAgent'],
    ['an unlisted agent', 'agent', 'unlistedAgent'],
    ['a public skill', 'skill', 'skill'],
  ] as const
  const rows = things.flatMap((thing) => ALL_APIS.map((api) => [...thing, api] as const))

  test.each(rows)('%s', async (_, kind, name, api) => {
    const id = open[name]
    const { token } = people.outsider
    const problems: string[] = []
    await untouched(() =>
      inParallel(
        FIELDS.filter((field) => field.kind === kind),
        async (field) => {
          const where = `${field.procedure}.${field.field}`
          // Answers 404 until the skill is attached, which happens concurrently.
          if (where.endsWith('updateSkill.skillId')) return
          const status = OPEN[kind][where]
          if (status === undefined) {
            // A list may contain runs that were started with it.
            if (!isTolerant(field)) problems.push(...(await attack(api, 'outsider', field, id)))
            return
          }
          const input = inputWith(field.procedure, field.field, id, owned.outsider)
          for (const answer of await call(api, field.procedure, input, token, field.field)) {
            const isExpected =
              status === 200 ? !/"error":true|"errors":/.test(answer.text) : answer.text.includes(FORBIDDEN)
            if (!isExpected) problems.push(`${where}: ${answer.text}`)
            if (answer.text.includes('hidden')) problems.push(`${where} tells the prompt`)
          }
        },
      ),
    )
    await maker(server, people.outsider).idle()
    expect(problems).toEqual([])
  })

  test.each(ALL_APIS)('%s: the owner sees nothing of foreign use', async (api) => {
    const traces: string[] = []
    await inParallel(READS, async (procedure) => {
      const input = inputWith(procedure, null, undefined, { ...victims.shared, agent: open.publicAgent, key: '' })
      for (const { text } of await call(api, procedure, input, people.victim.token)) {
        if (text.includes('own-outsider')) traces.push(`${procedure}: ${text}`)
      }
    })
    expect(traces).toEqual([])
  })
})

const CONTROLS = onApis(FIELDS)

describe('every field is also tried with existing things', () => {
  test('GraphQL: node finds something of every type', async () => {
    expect(Object.keys(victims.shared)).toEqual(expect.arrayContaining([...NODES.keys()]))
    for (const [kind, id] of Object.entries(victims.shared)) {
      if (!NODES.has(kind)) continue
      // Keys are visible to their owner only.
      const { data, errors } = await askNode('colleague', kind, kind === 'key' ? owned.colleague.key : id)
      expect([errors, data.node?.id]).toEqual([undefined, kind === 'key' ? owned.colleague.key : id])
    }
  })

  test.each(ALL_APIS)('%s: one’s own ids get other answers than ids that never existed', async (api) => {
    const member = await server.member({ organization: `Control ${api}`, role: 'owner' })
    const own = await everything(server, member, 'control')
    const make = maker(server, member)
    await make.does('agents.update', { id: own.agent, visibility: 'public' })
    await make.does('missions.run', { id: own.mission })
    await make.does('tasks.create', { title: 'For a person', assignTo: own.user })
    await make.does('tasks.update', { id: own.task, assignTo: own.agent })
    await make.does('tasks.execute', { id: own.task })
    const problems: string[] = []
    const fields = CONTROLS.flatMap((one) => (one.api === api ? one.field : []))
    for (const { procedure, field, kind } of fields.sort((a, b) => destroys(a) - destroys(b))) {
      const { agent, skill, mcp } = own
      const attached = { addAgents: [agent], addSkills: [skill], addMcps: [mcp] }
      const needsAttached = field.startsWith('remove') || procedure === 'spaces.updateSkill'
      if (needsAttached) await make.does('spaces.update', { id: own.space, ...attached })
      // Each of two procedures revokes it.
      if (kind === 'key') own.key = await make.key({ canary: 'control' })
      if (/Invitation/.test(procedure)) own.invitation = await make.invitation({ canary: 'control' })
      if (/Service/.test(procedure)) Object.assign(own, await make.service({ canary: 'control' }))
      // The server drops a delivery that is sent again, because its event is none.
      if (/replayDelivery/.test(procedure)) Object.assign(own, await make.webhook({ canary: 'control' }))
      if (kind === 'browser') own.browser = await make.browser({ canary: 'control' })
      const ask = (id: string) => call(api, procedure, inputWith(procedure, field, id, own), member.token, field)
      const never = neverWas(kind)
      const nobodys = (await ask(never)).map((answer) => plain(answer, never))
      const theirs = (await ask(own[kind])).map((answer) => plain(answer, own[kind]))
      theirs.forEach((answer, index) => {
        if (answer === nobodys[index]) problems.push(`${procedure}.${field}: ${answer}`)
      })
    }
    expect(problems).toEqual([])
  })
})

/** Orders deletions last, and of those the things that others depend on. */
const destroys = ({ procedure }: Field): number =>
  !procedure.endsWith('.delete') ? 0 : ['spaces.delete', 'agents.delete'].indexOf(procedure) + 2

test('every id in an argument or input field of GraphQL is a field of a procedure', () => {
  const known = new Set(
    ROOTS.flatMap((root) => Object.keys(inputsOf(root)).map((name) => `${root.field.name}.${name}`)),
  )
  const unknown = ROOTS.flatMap((root) =>
    Object.keys(inputsOf(root))
      .filter((name) => takesId(name) && root.procedure !== null && !(name in shapeOf(root.procedure)))
      .map((name) => `${root.field.name}.${name}`),
  )
  expect(known.size).toBeGreaterThan(100)
  expect(unknown).toEqual([])
  // Relations take no ids: their row decides about access.
  const deeper = Object.values(schema.getTypeMap()).flatMap((type) => {
    const isRoot = ROOTS.some(({ operation }) => schema.getRootType(operation as never) === type)
    if (isRoot || !isObjectType(type) || isIntrospectionType(type)) return []
    return Object.values(type.getFields()).flatMap((field) =>
      field.args.filter(({ name }) => takesId(name)).map(({ name }) => `${type.name}.${field.name}.${name}`),
    )
  })
  expect(deeper).toEqual([])
})
