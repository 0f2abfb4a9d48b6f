import { addCopies, openBeside } from '../copies.ts'
import { call, type Lab } from '../lab.ts'
import { median, time } from '../numbers.ts'
import type { Row } from './row.ts'

const FEW = 1_000
const MANY = 100_000
const AGENTS = 5
const DAY = 24 * 60 * 60 * 1000

/** Asks a service for the usage of the last 30 days, in which so many executions ended, as many each day and agent. */
async function withExecutions(lab: Lab, count: number): Promise<() => Promise<unknown>> {
  const folder = lab.folder()
  const service = await lab.service(folder)
  const agent = { name: 'Ada', systemPrompt: 'You are a helpful librarian.' }
  let id = ''
  for (let index = 0; index < AGENTS; index++)
    ({ id } = await call<{ id: string }>(service, 'POST', '/api/v1/agents', agent))
  await call(service, 'POST', `/api/v1/agents/${id}/execute`, { message: 'Where is the atlas?' })
  const database = openBeside(folder)
  const past = (column: string) => `"${column}" - (n % 30) * ${DAY}`
  const [createdAt, startedAt, completedAt] = [past('createdAt'), past('startedAt'), past('completedAt')]
  const agentId = `(SELECT "id" FROM "Agent" WHERE rowid = 1 + n / 30 % ${AGENTS})`
  const of = { id: `'exec-' || n`, rootExecutionId: `'exec-' || n`, queueSeq: '"queueSeq" + n', agentId }
  addCopies(database, 'Execution', count - 1, { ...of, createdAt, startedAt, completedAt })
  // As the executions would have left it when they ended.
  database.exec(`
    DELETE FROM "UsageDay";
    INSERT INTO "UsageDay" SELECT "organizationId", date("completedAt" / 1000, 'unixepoch'), "agentId", "model", count(*),
      0, sum("inputTokens"), sum("outputTokens") FROM "Execution" GROUP BY 1, 2, 3, 4`)
  const { organizationId } = database.prepare('SELECT "organizationId" FROM "Agent"').get() as {
    organizationId: string
  }
  database.close()
  return async () => {
    const path = `/api/usage/organization/${organizationId}`
    const { totals } = await call<{ totals: { executions: number } }>(service, 'GET', path)
    if (totals.executions !== count) throw new Error(`${totals.executions} of ${count} executions are reported`)
  }
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
