import { type Database, Prisma } from '../../src/db/client.ts'
import { addCopies } from '../copies.ts'
import { call, type Lab } from '../lab.ts'
import { median, time } from '../numbers.ts'
import type { Row } from './row.ts'

const FEW = 1_000
const MANY = 100_000
const AGENTS = 5
const DAY = 24 * 60 * 60 * 1000

/**
 * Asks a service for the usage of the last 30 days with a number of executions, distributed evenly over days and
 * agents.
 */
async function withExecutions(lab: Lab, count: number): Promise<() => Promise<unknown>> {
  const folder = lab.folder()
  const service = await lab.service(folder)
  const agent = { name: 'Ada', systemPrompt: 'You are a helpful librarian.' }
  let id = ''
  for (let index = 0; index < AGENTS; index++)
    ({ id } = await call<{ id: string }>(service, 'POST', '/api/v1/agents', agent))
  await call(service, 'POST', `/api/v1/agents/${id}/execute`, { message: 'Where is the atlas?' })
  const database = await lab.beside(folder)
  const { organizationId } = await database.client.agent.findFirstOrThrow()
  await copyExecution(database, count - 1)
  await countAnew(database)
  await database.close()
  return async () => {
    const path = `/api/usage/organization/${organizationId}`
    const { totals } = await call<{ totals: { executions: number } }>(service, 'GET', path)
    if (totals.executions !== count) throw new Error(`${totals.executions} of ${count} executions are reported`)
  }
}

/** Adds copies of the only execution, the same number for each day and agent. */
async function copyExecution(database: Database, count: number): Promise<void> {
  const row = await database.client.execution.findFirstOrThrow()
  const agents = await database.client.agent.findMany({ select: { id: true } })
  const agentId = agents.map(({ id }, index) => `WHEN ${index} THEN '${id}'`).join(' ')
  const past = `(n % 30) * ${DAY}`
  await addCopies(database, {
    table: 'Execution',
    row,
    count,
    changes: {
      id: `'exec-' || n`,
      rootExecutionId: `'exec-' || n`,
      queueSeq: '"queueSeq" + n',
      agentId: `CASE n / 30 % ${AGENTS} ${agentId} END`,
    },
    earlier: { createdAt: past, startedAt: past, completedAt: past },
  })
}

/** Counts the usage of each day, as the executions would have at their ends. */
async function countAnew({ client, kind }: Database): Promise<void> {
  const day = kind === 'sqlite' ? `date("completedAt" / 1000, 'unixepoch')` : `to_char("completedAt", 'YYYY-MM-DD')`
  await client.usageDay.deleteMany()
  await client.$executeRaw(
    Prisma.raw(`
      INSERT INTO "UsageDay" ("organizationId", "date", "agentId", "model", "userId",
        "executions", "failed", "inputTokens", "outputTokens")
      SELECT "organizationId", ${day}, "agentId", "model", "userId", count(*), 0,
        sum("inputTokens"), sum("outputTokens") FROM "Execution" GROUP BY 1, 2, 3, 4, 5`),
  )
}

const usage: Row = {
  name: 'usage',
  what: `usage of 30 days, ${MANY.toLocaleString('en')} executions`,
  unit: 'ms, p50',
  reference: `of ${FEW.toLocaleString('en')}`,
  goal: { of: 'ratio', atMost: 1.3 },
  async prepare(lab) {
    const few = await withExecutions(lab, FEW)
    const many = await withExecutions(lab, MANY)
    return async ({ repeats }) => {
      const [theirs, ours]: [number[], number[]] = [[], []]
      for (let pair = 0; pair < repeats; pair++) {
        theirs.push(await time(few))
        ours.push(await time(many))
      }
      return { value: median(ours), reference: median(theirs) }
    }
  },
}

export const usageRows: Row[] = [usage]
