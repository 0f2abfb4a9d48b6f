import { setTimeout as sleep } from 'node:timers/promises'
import { addCopies } from '../copies.ts'
import { call } from '../lab.ts'
import { median, percentile } from '../numbers.ts'
import type { Row } from './row.ts'

const MISSIONS = 10_000
const MINUTE = 60_000
const PATIENCE = 5 * MINUTE

const scheduler: Row = {
  name: 'scheduler',
  what: `${MISSIONS.toLocaleString('en')} missions due within a minute: how late each starts`,
  unit: 'ms, p99',
  reference: 'p50 of the same',
  once: true,
  async prepare(lab) {
    return async () => {
      const folder = lab.folder()
      const service = await lab.service(folder)
      const agent = { name: 'Ada', systemPrompt: 'You are a helpful librarian.' }
      const { id: agentId } = await call<{ id: string }>(service, 'POST', '/api/v1/agents', agent)
      const begin = Date.now() + 5_000
      const schedule = { type: 'once', value: new Date(begin).toISOString() }
      const mission = { title: 'News', goal: 'Where is the atlas?', agentId, schedule }
      await call(service, 'POST', '/api/v1/missions', mission)
      const database = await lab.beside(folder)
      const { mission: missions, execution: executions } = database.client
      const row = await missions.findFirstOrThrow()
      const [changes, earlier] = [{ id: `"id" || '-' || n` }, { nextRunAt: `-n * ${MINUTE / MISSIONS}` }]
      await addCopies(database, { table: 'Mission', row, count: MISSIONS - 1, changes, earlier })
      const where = { missionId: { not: null }, status: 'completed' } as const
      for (const deadline = begin + PATIENCE; (await executions.count({ where })) !== MISSIONS; await sleep(500)) {
        if (Date.now() > deadline) throw new Error(`${await executions.count({ where })} of ${MISSIONS} missions ran`)
      }
      const fired = new Map((await missions.findMany()).map(({ id, lastRunAt }) => [id, lastRunAt!.getTime()]))
      const ran = await executions.findMany({ where })
      const late = ran.map(({ missionId, startedAt }) => startedAt!.getTime() - fired.get(missionId!)!)
      await database.close()
      await service.stop()
      return { value: percentile(99, late), reference: median(late) }
    }
  },
}

export const schedulerRows: Row[] = [scheduler]
