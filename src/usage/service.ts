import { LRUCache } from 'lru-cache'
import type { z } from 'zod'
import type { Actor } from '../auth/actor.ts'
import { Prisma, type Tx } from '../db/client.ts'
import { addsTo } from '../db/fast-path/index.ts'
import type { Deps } from '../deps.ts'
import { badRequest } from '../errors.ts'
import type { ExecutionRow } from '../executions/engine/events/events.ts'
import { isCurrentModel } from '../executions/engine/models/providers.ts'
import { registerRunHooks } from '../executions/engine/queue/run-hooks.ts'
import type { GetUsage, Period, Totals } from './schema.ts'

/**
 * Adds a run to its day's row in the run's final transaction, so that a report reads as many rows as days.
 * Concurrently ending runs wait for the row.
 */
export async function onRunEnded(tx: Tx, run: ExecutionRow, now: Date): Promise<void> {
  const failed = run.status === 'failed' ? 1 : 0
  const date = now.toISOString().slice(0, 10)
  const { organizationId, agentId, userId, inputTokens, outputTokens } = run
  const key = { organizationId, date, agentId, model: groupOf(run, date), userId }
  await tx.$executeRaw(addToDay({ ...key, executions: 1, failed, inputTokens, outputTokens }))
}

const AMOUNTS = ['executions', 'failed', 'inputTokens', 'outputTokens'] as const
const addToDay = addsTo('UsageDay', ['organizationId', 'date', 'agentId', 'model', 'userId'], AMOUNTS)

registerRunHooks({ onRunEnded, isLast: true })

/** Maximum number of distinct models per organization and day besides the providers' current ones, per process. */
const MAX_MODELS = 50

/** Model names of an organization's day so far. Names come from callers and are unbounded. */
const modelsOfDay = new LRUCache<string, Set<string>>({ max: 1_000 })

/** Returns the model for the usage of a run: its own, or `other` if the day has too many different ones. */
function groupOf({ organizationId, model }: ExecutionRow, date: string): string {
  if (!model || isCurrentModel(model)) return model ?? ''
  const key = `${organizationId} ${date}`
  const models = modelsOfDay.get(key) ?? new Set()
  if (models.size >= MAX_MODELS && !models.has(model)) return 'other'
  modelsOfDay.set(key, models.add(model))
  return model
}

type Amounts = z.output<typeof Totals>
/** Sums of a day, by agent and model, or by user. */
type UsageRow = Omit<Prisma.UsageDayGetPayload<object>, 'organizationId' | 'agentId' | 'model' | 'userId'> & {
  agentId: string | null
  model: string | null
  userId: string | null
}
type Range = { start: string; end: string }

const DAY = 24 * 60 * 60 * 1000
const DEFAULT_DAYS = 30
const MAX_DAYS = 366

/**
 * GET /usage/organization/{orgId}: returns the organization's usage by period, from its daily rows. Other users'
 * private agents are counted but not named (contract.md section 2).
 */
export async function get(actor: Actor, { db, clock }: Deps, input: z.output<typeof GetUsage>) {
  const { organizationId } = actor
  const { start, end } = rangeOf(input, clock.now())
  const period = input.period ?? 'daily'
  const all = await readRows(db, organizationId, { start, end })
  const rows = all.filter(({ userId }) => userId === null)
  const byUser = Map.groupBy(
    all.filter(({ userId }) => userId !== null),
    ({ date }) => beginOf(date, period),
  )
  const hidden = await hiddenAgents(actor, db, rows)
  const visibleOf = (some: UsageRow[]) => some.filter(({ agentId }) => !hidden.has(agentId ?? ''))
  const usage = group(rows, ({ date }) => beginOf(date, period)).map(([date, some]) => ({
    date,
    ...sum(some),
    byAgent: ranked(visibleOf(some), 'agentId').map(([agentId, its]) => ({ agentId, ...its })),
    byModel: ranked(some, 'model').map(([model, its]) => ({ model: model || null, ...its })),
    byUser: ranked(byUser.get(date) ?? [], 'userId').map(([userId, its]) => ({ userId: userId || null, ...its })),
  }))
  return { organizationId, period, start, end, usage, totals: sum(rows) }
}

const SUMS = Prisma.raw(AMOUNTS.map((name) => `CAST(sum("${name}") AS BIGINT) AS "${name}"`).join(', '))

/** Reads the sums of each day. The database adds up, because a day has a row for each agent, model and user. */
function readRows(db: Deps['db'], organizationId: string, { start, end }: Range): Promise<UsageRow[]> {
  const where = Prisma.sql`"organizationId" = ${organizationId} AND "date" >= ${start} AND "date" <= ${end}`
  return db.$queryRaw<UsageRow[]>(Prisma.sql`
    SELECT "date", "agentId", "model", NULL AS "userId", ${SUMS} FROM "UsageDay"
      WHERE ${where} GROUP BY "date", "agentId", "model"
    UNION ALL SELECT "date", NULL, NULL, "userId", ${SUMS} FROM "UsageDay" WHERE ${where} GROUP BY "date", "userId"
    ORDER BY "date", "agentId", "model"`)
}

const dateOf = (time: number): string => new Date(time).toISOString().slice(0, 10)

function rangeOf(input: z.output<typeof GetUsage>, now: Date): Range {
  const end = input.end ?? dateOf(now.getTime())
  const start = input.start ?? dateOf(Date.parse(end) - (DEFAULT_DAYS - 1) * DAY)
  const days = (Date.parse(end) - Date.parse(start)) / DAY + 1
  if (days < 1)
    throw badRequest('Invalid date range. start must not be after end', { detail: 'Exchange `start` and `end`.' })
  if (days > MAX_DAYS)
    throw badRequest(`Invalid date range. At most ${MAX_DAYS} days`, {
      detail: `This range has ${days} days: ask for it in parts.`,
    })
  return { start, end }
}

/** Returns the first day of the period that contains a day. */
export function beginOf(date: string, period: z.output<typeof Period>): string {
  if (period === 'daily') return date
  if (period === 'monthly') return `${date.slice(0, 7)}-01`
  const time = Date.parse(date)
  const daysSinceMonday = (new Date(time).getUTCDay() + 6) % 7
  return dateOf(time - daysSinceMonday * DAY)
}

async function hiddenAgents({ organizationId, userId }: Actor, db: Deps['db'], rows: UsageRow[]): Promise<Set<string>> {
  const ids = [...new Set(rows.map(({ agentId }) => agentId ?? ''))]
  // Filters by id only, because with the organization SQLite would scan all of its agents.
  const select = { id: true, organizationId: true, visibility: true, userId: true } as const
  const agents = (await db.agent.findMany({ where: { id: { in: ids } }, select })).filter(
    (agent) => agent.organizationId === organizationId,
  )
  const hidden = agents.filter((agent) => agent.visibility === 'private' && agent.userId !== userId)
  return new Set(hidden.map(({ id }) => id))
}

/** Groups rows by key, in order of first occurrence. */
const group = (rows: UsageRow[], keyOf: (row: UsageRow) => string) => [...Map.groupBy(rows, keyOf)]

/** Sums rows by the values of a column, those with the most runs first. */
const ranked = (rows: UsageRow[], name: 'agentId' | 'model' | 'userId') =>
  group(rows, (row) => row[name] ?? '')
    .map(([value, its]) => [value, sum(its)] as const)
    .sort(([, one], [, other]) => other.executions - one.executions)

function sum(rows: UsageRow[]): Amounts {
  const total = { executions: 0, failed: 0, input_tokens: 0, output_tokens: 0 }
  for (const row of rows) {
    total.executions += Number(row.executions)
    total.failed += Number(row.failed)
    total.input_tokens += Number(row.inputTokens)
    total.output_tokens += Number(row.outputTokens)
  }
  return total
}
