import assert from 'node:assert/strict'
import Sqlite from 'better-sqlite3'
import { type Answer, request } from '../support/rest.ts'
import { createSubject, executePath, type Subject } from './service.ts'

export type KeysReport = { rounds: number; requests: number; replayed: number }

const AT_ONCE = 50

/** Two POSTs with effects of different kinds: a row in one transaction, and a run. */
const POSTS = (subject: Subject) => [
  {
    path: '/api/v1/agents',
    body: { name: 'Bo', systemPrompt: 'You are Bo.' },
    idOf: ({ body }: Answer): string => body.id,
    count: () => subject.db.agent.count(),
  },
  {
    path: executePath(subject),
    body: { message: 'Hello', background: true },
    idOf: ({ body }: Answer): string => body.executionId,
    count: () => subject.db.execution.count(),
  },
]

/** Sends 50 POSTs with one key at once, for a number of rounds: each has one effect, and all answers name it. */
export async function parallelKeys(rounds: number): Promise<KeysReport> {
  await using subject = await createSubject()
  const report: KeysReport = { rounds, requests: 0, replayed: 0 }
  for (let round = 0; round < rounds; round++) {
    const { path, body, idOf, count } = POSTS(subject)[round % 2]!
    const before = await count()
    const headers = { 'Idempotency-Key': `round ${round}` }
    const answers = await Promise.all(
      Array.from({ length: AT_ONCE }, () => request(subject, 'POST', path, { body, headers })),
    )
    for (const { status, body } of answers) assert.equal(status, 200, JSON.stringify(body))
    assert.equal(new Set(answers.map(idOf)).size, 1, `round ${round}: more than one answer`)
    assert.equal(await count(), before + 1, `round ${round}: more than one effect`)
    const replayed = answers.filter(({ headers }) => headers.get('idempotent-replayed') === 'true')
    assert.equal(replayed.length, AT_ONCE - 1, `round ${round}: ${replayed.length} replays`)
    report.requests += AT_ONCE
    report.replayed += replayed.length
  }
  return report
}

/**
 * Kills the server as soon as the record of a key is visible, for a number of rounds. The retry gets the same id, of
 * one row.
 */
export async function killedKeys(subject: Subject, rounds: number): Promise<KeysReport> {
  const report: KeysReport = { rounds, requests: 0, replayed: 0 }
  const records = new Sqlite(subject.file, { readonly: true })
  const seen = records.prepare<[], { count: number }>('SELECT count(*) AS "count" FROM "IdempotencyRecord"')
  for (let round = 0; round < rounds; round++) {
    const { path, body, count } = POSTS(subject)[round % 2]!
    const before = await count()
    const known = seen.get()!.count
    const headers = { 'Idempotency-Key': `killed ${round}` }
    const post = () => request(subject, 'POST', path, { body, headers })
    // Until then the model is silent: a run that is killed in its answer fails, and a failed run may be repeated.
    const { fallback } = subject.model
    subject.model.fallback = { end: 'hang' }
    // The client is gone, so a late answer is ignored.
    const lost = post().catch(() => {})
    while (seen.get()!.count === known) await new Promise((resolve) => setImmediate(resolve))
    await subject.kill()
    subject.model.fallback = { tokens: 'Done.' }
    await lost
    await subject.start()
    const retries = [await post(), await post()]
    const ids = retries.map(POSTS(subject)[round % 2]!.idOf)
    for (const retry of retries) {
      assert.equal(retry.status, 200, JSON.stringify(retry.body))
      assert.equal(retry.headers.get('idempotent-replayed'), 'true', `round ${round}: it was done again`)
    }
    assert.equal(ids[0], ids[1])
    assert.equal(await count(), before + 1, `round ${round}: more than one row`)
    subject.model.fallback = fallback
    report.requests += 3
    report.replayed += retries.length
  }
  records.close()
  return report
}
