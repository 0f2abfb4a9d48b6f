import { newTimedId } from '../../src/lib/id.ts'
import { addCopies } from '../copies.ts'
import { call, type Lab, type Service } from '../lab.ts'
import { median, time } from '../numbers.ts'
import type { Row } from './row.ts'

const FEW = 1_000
const MANY = 100_000
const STATUSES = ['pending', 'in_progress', 'completed', 'cancelled'] as const
const PRIORITIES = ['low', 'medium', 'high', 'urgent'] as const

/** A service with a number of tasks, of which every filter matches at least a tenth, and the filters. */
async function withTasks(lab: Lab, count: number): Promise<{ service: Service; filters: string[] }> {
  const folder = lab.folder()
  const service = await lab.service(folder)
  const agent = { name: 'Ada', systemPrompt: 'You are a helpful librarian.' }
  const { id: agentId, chatUrl } = await call<{ id: string; chatUrl: string }>(service, 'POST', '/api/v1/agents', agent)
  const spaceId = chatUrl.split('/')[3]
  const { task } = await call<{ task: { organizationId: string; createdBy: string } }>(
    service,
    'POST',
    '/api/v1/tasks',
    { title: 'The first' },
  )
  const { organizationId, createdBy } = task
  const started = Date.now() - count
  const tasks = Array.from({ length: FEW }, (_, n) => {
    const createdAt = new Date(started + n)
    const assignedAgentId = n % 5 === 0 ? agentId : null
    return {
      id: newTimedId('task', createdAt),
      organizationId,
      createdBy,
      createdAt,
      updatedAt: createdAt,
      title: `Task ${n}`,
      description: 'Where is the atlas?',
      status: STATUSES[n % 4]!,
      priority: PRIORITIES[(n >> 2) % 4]!,
      assignedAgentId,
      assignedTo: n % 5 === 1 ? createdBy : assignedAgentId,
      spaceId: n % 3 ? null : spaceId!,
    }
  })
  const database = await lab.beside(folder)
  const { task: table } = database.client
  await table.deleteMany()
  await table.createMany({ data: tasks })
  if (count > FEW) {
    const row = await table.findFirstOrThrow()
    const [changes, earlier] = [{ id: `"id" || '-' || n` }, { createdAt: `n * ${FEW}` }]
    await addCopies(database, { table: 'Task', row, count: count / FEW - 1, changes, earlier })
  }
  await database.close()
  const by = { status: 'pending', priority: 'high', assignedTo: agentId, spaceId }
  const filters = Object.entries(by).map(([field, value]) => `&${field}=${value}`)
  return { service, filters: ['', ...filters, '&assignedTo=me', '&assignedTo=none'] }
}

const tasks: Row = {
  name: 'tasks',
  what: `first 100 of ${MANY.toLocaleString('en')} tasks, by the filter that costs most`,
  unit: 'ms, p50',
  reference: `of ${FEW.toLocaleString('en')}`,
  goal: { of: 'ratio', atMost: 1.3 },
  async prepare(lab) {
    const few = await withTasks(lab, FEW)
    const many = await withTasks(lab, MANY)
    return async ({ repeats }) => {
      const samples = []
      for (const [index, filter] of many.filters.entries()) {
        const [theirs, ours]: [number[], number[]] = [[], []]
        for (let pair = 0; pair < repeats; pair++) {
          theirs.push(await time(() => call(few.service, 'GET', `/api/v1/tasks?limit=100${few.filters[index]}`)))
          ours.push(await time(() => call(many.service, 'GET', `/api/v1/tasks?limit=100${filter}`)))
        }
        samples.push({ value: median(ours), reference: median(theirs) })
      }
      return samples.reduce((worst, each) =>
        each.value / each.reference > worst.value / worst.reference ? each : worst,
      )
    }
  },
}

export const taskRows: Row[] = [tasks]
