import { setTimeout as sleep } from 'node:timers/promises'
import { addCopies } from '../copies.ts'
import { call, type Lab } from '../lab.ts'
import { load } from '../load.ts'
import type { Row } from './row.ts'
import { conversation } from './runs.ts'

const PENDING = 10_000
const MESSAGE = 'Where is the atlas?'

/** Makes a webhook with an address that refuses connections, and its pending deliveries. */
async function withDeadWebhook(lab: Lab) {
  const target = await conversation(lab, 20, 0, { ALLOW_PRIVATE_NETWORK: 'true' })
  const { service, folder } = target
  await call(service, 'POST', '/api/v1/webhooks', { url: 'http://127.0.0.1:9/', events: ['agent.created'] })
  await call(service, 'POST', '/api/v1/agents', { name: 'Bob', systemPrompt: 'You are a helpful gardener.' })
  const database = await lab.beside(folder)
  const { webhookDelivery } = database.client
  let row = await webhookDelivery.findFirst()
  for (; !row; row = await webhookDelivery.findFirst()) await sleep(100)
  const changes = { id: `'delivery-' || n`, status: `'pending'`, nextAttemptAt: '"createdAt"', leasedUntil: 'NULL' }
  await addCopies(database, { table: 'WebhookDelivery', row, count: PENDING - 1, changes })
  await database.close()
  return target
}

const pendingDeliveries: Row = {
  name: 'pending-deliveries',
  what: `runs, ${PENDING.toLocaleString('en')} pending deliveries to a dead webhook`,
  unit: 'runs/s',
  reference: 'without webhooks',
  goal: { of: 'ratio', atLeast: 0.95 },
  async prepare(lab) {
    const [ours, theirs] = await Promise.all([withDeadWebhook(lab), conversation(lab, 20, 0)])
    const work = ({ service: program, path }: typeof ours) =>
      ({ program, path, method: 'POST', headers: program.headers, body: { message: MESSAGE } }) as const
    for (const { service, path } of [ours, theirs]) await call(service, 'POST', path, { message: MESSAGE })
    return async ({ seconds }) => {
      const without = await load(work(theirs), seconds)
      const pending = await load(work(ours), seconds)
      return { value: pending.rate, reference: without.rate, cpu: [pending.cpu, without.cpu] }
    }
  },
}

export const webhookRows: Row[] = [pendingDeliveries]
