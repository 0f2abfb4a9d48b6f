import { addCopies } from '../copies.ts'
import { call, type Lab } from '../lab.ts'
import { median, time } from '../numbers.ts'
import type { Row } from './row.ts'
import { conversation } from './runs.ts'

const FEW = 9
const MANY = 1_000
/** A question, and an answer of the same length. */
const MESSAGE = 'Where is the atlas, and who had it last? '.repeat(5)

/** Duration of the next run in a session with a number of turns. The run is removed again. */
async function withTurns(lab: Lab, turns: number, settings: Record<string, string>): Promise<() => Promise<number>> {
  const { folder, service, path } = await conversation(lab, 20, 0, settings)
  const first = await call<{ chatId: string; sessionId: string }>(service, 'POST', path, { message: MESSAGE })
  const database = await lab.beside(folder)
  const { client: db } = database
  const id = `'run-' || n`
  const count = turns - 1
  const row = await db.execution.findFirstOrThrow()
  const changes = { id, rootExecutionId: id, queueSeq: 'n + 1' }
  await addCopies(database, { table: 'Execution', row, count, changes })
  for (const [role, position] of [
    ['user', '2 * n + 1'],
    ['assistant', '2 * n + 2'],
  ] as const) {
    const copy = { id: `'${role}-' || n`, executionId: id, position, content: `'${MESSAGE}'` }
    const message = await db.message.findFirstOrThrow()
    const where = `"role" = '${role}'`
    await addCopies(database, { table: 'Message', row: message, where, count, changes: copy })
  }
  const forget = () =>
    db.$transaction(async (tx) => {
      await tx.message.deleteMany({ where: { position: { gt: 2 * turns } } })
      await tx.execution.deleteMany({ where: { queueSeq: { gt: turns } } })
      await tx.session.updateMany({ data: { lastQueueSeq: turns } })
    })
  const { chatId, sessionId } = first
  return async () => {
    await forget()
    return time(() => call(service, 'POST', path, { message: MESSAGE, chatId, sessionId }))
  }
}

const row = (name: string, what: string, settings: Record<string, string>, goal?: NonNullable<Row['goal']>): Row => ({
  name,
  what,
  unit: 'ms, p50',
  reference: 'the 10th',
  ...(goal && { goal }),
  async prepare(lab) {
    const few = await withTurns(lab, FEW, settings)
    const many = await withTurns(lab, MANY, settings)
    return async ({ repeats }) => {
      const [theirs, ours]: [number[], number[]] = [[], []]
      for (let pair = 0; pair < repeats; pair++) {
        theirs.push(await few())
        ours.push(await many())
      }
      return { value: median(ours), reference: median(theirs) }
    }
  },
})

/** Size of the last nine turns as the setting counts, with both prompts. */
const NINE = String(Math.ceil((FEW * 2 * (MESSAGE.length + 2)) / 4))

export const turnRows: Row[] = [
  row(
    'turns',
    '1,001st run of a session, history of equal size',
    { MAX_HISTORY_TOKENS: NINE },
    { of: 'ratio', atMost: 1.2 },
  ),
  row('turns-history', '1,001st run, history of 1,000 messages', { MAX_HISTORY_TOKENS: '1000000' }),
]
