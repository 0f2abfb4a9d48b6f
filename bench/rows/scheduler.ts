import { setTimeout as sleep } from 'node:timers/promises'
import { addCopies, openBeside } from '../copies.ts'
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
      const database = openBeside(folder)
      const nextRunAt = `${begin} + n * ${MINUTE / MISSIONS}`
      addCopies(database, 'Mission', MISSIONS - 1, { id: `"id" || '-' || n`, nextRunAt })
      const ended = database
        .prepare(`SELECT count(*) FROM "Execution" WHERE "missionId" IS NOT NULL AND "status" = 'completed'`)
        .pluck()
      for (const deadline = begin + PATIENCE; ended.get() !== MISSIONS; await sleep(500)) {
        if (Date.now() > deadline) throw new Error(`${ended.get()} of ${MISSIONS} missions ran`)
      }
      const late = database
        .prepare(`SELECT e."startedAt" - m."lastRunAt" FROM "Execution" e JOIN "Mission" m ON m."id" = e."missionId"`)
        .pluck()
        .all() as number[]
      database.close()
      await service.stop()
      return { value: percentile(99, late), reference: median(late) }
    }
  },
}

export const schedulerRows: Row[] = [scheduler]
