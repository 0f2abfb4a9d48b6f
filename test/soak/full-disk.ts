import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chown } from 'node:fs/promises'
import { violations } from '../engine/invariants.ts'
import { startCluster } from '../support/cluster.ts'
import { createFolder } from '../support/folder.ts'
import { runSql, startPostgres, unprivilegedUser } from '../support/postgres.ts'
import { type Answer, request } from '../support/rest.ts'
import { settled, until } from './service.ts'

/** Whether this process may mount a small disk. */
export const canFillDisk = process.platform === 'linux' && process.getuid?.() === 0

/**
 * A server whose PostgreSQL has its tables on a disk of 32 MiB, which is filled while runs are in progress and then
 * grows. No acknowledged task may be missing, no refused one stored, and every accepted run completes.
 */
export async function fullDisk(runs: number): Promise<{ stored: number; refused: number; accepted: number }> {
  await using cleanup = new AsyncDisposableStack()
  const disk = cleanup.use(await createFolder())
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=32m', 'none', disk.path])
  cleanup.defer(() => void execFileSync('umount', [disk.path]))
  const user = await unprivilegedUser()
  if (user) await chown(disk.path, user.uid, user.gid)
  const postgres = cleanup.use(await startPostgres())
  const admin = await postgres.createDatabase()
  await runSql(admin, `CREATE TABLESPACE small LOCATION '${disk.path}'`)
  await runSql(admin, 'CREATE DATABASE small TABLESPACE small')
  const url = Object.assign(new URL(admin), { pathname: '/small' }).href
  const cluster = cleanup.use(await startCluster(url, [{ LOG_LEVEL: 'fatal' }]))
  const { model, db } = cluster
  const at = cluster.at(0)
  const agentId = await cluster.createAgent()
  const execute = (message: string) =>
    request(at, 'POST', `/api/v1/agents/${agentId}/execute`, { body: { message, background: true } })
  const write = (title: string) => {
    const description = randomBytes(20_000).toString('base64')
    return request(at, 'POST', '/api/v1/tasks', { body: { title, description } })
  }
  const readiness = async () => (await request(at, 'GET', '/readyz')).body
  const resume = Promise.withResolvers<void>()
  model.fallback = () => ({ tokens: ['one ', resume.promise, randomBytes(100_000).toString('base64')] })

  const answers: Answer[] = []
  for (let count = 0; count < runs; count++) answers.push(await execute(`before ${count}`))
  await model.request(runs - 1)
  const titles = new Set<string>()
  let refused: Answer | null = null
  for (let count = 0; !refused; count++) {
    const answer = await write(`task ${count}`)
    if (answer.status === 200) titles.add(`task ${count}`)
    else refused = answer
  }
  assert.equal(refused.status, 503)
  assert.match(refused.body.detail, /disk of the database is full/)
  assert.equal((await readiness()).writes, 'disk_full')
  resume.resolve()
  for (let count = 0; count < runs; count++) answers.push(await execute(`during ${count}`))
  assert.equal((await request(at, 'GET', '/api/v1/tasks?limit=1')).status, 200)

  execFileSync('mount', ['-o', 'remount,size=500m', disk.path])
  await until('writes succeed', async () => (await write('later')).status === 200)
  await settled(db)
  const accepted = answers.flatMap(({ status, body }) => (status === 200 ? [body.executionId] : []))
  for (const { status } of answers) assert(status === 200 || status === 503, `execute answered ${status}`)
  const executions = await db.execution.findMany({ select: { id: true, status: true } })
  assert.deepEqual(executions.map(({ id }) => id).sort(), accepted.sort())
  assert.deepEqual(new Set(executions.map(({ status }) => status)), new Set(['completed']))
  const tasks = await db.task.findMany({ where: { title: { not: 'later' } }, select: { title: true } })
  assert.deepEqual(new Set(tasks.map(({ title }) => title)), titles)
  assert.deepEqual(await violations(db), [])
  await until('readiness forgets the full disk', async () => (await readiness()).writes === undefined)
  return { stored: tasks.length, refused: answers.length - accepted.length, accepted: accepted.length }
}
