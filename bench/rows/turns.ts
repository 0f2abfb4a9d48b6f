import { addCopies, openBeside } from '../copies.ts'
import { call, type Lab } from '../lab.ts'
import { median, time } from '../numbers.ts'
import type { Row } from './row.ts'
import { conversation } from './runs.ts'

const FEW = 9
const MANY = 1_000
/** A question, and an answer that is as long. */
const MESSAGE = 'Where is the atlas, and who had it last? '.repeat(5)

/** How long the next run takes in a session that has so many turns behind it; it is forgotten again. */
async function withTurns(lab: Lab, turns: number, settings: Record<string, string>): Promise<() => Promise<number>> {
  const { folder, service, path } = await conversation(lab, 20, 0, settings)
  const first = await call<{ chatId: string; sessionId: string }>(service, 'POST', path, { message: MESSAGE })
  const database = openBeside(folder)
  const id = `'run-' || n`
  const added = turns - 1
  addCopies(database, 'Execution', added, { id, rootExecutionId: id, queueSeq: 'n + 1' })
  const executionId = id
  for (const [role, place] of [
    ['user', '2 * n + 1'],
    ['assistant', '2 * n + 2'],
  ]) {
    const copy = { id: `'${role}-' || n`, executionId, role: `'${role}'`, position: place!, content: `'${MESSAGE}'` }
    addCopies(database, 'Message', added, copy)
  }
  const forget = () =>
    database.exec(`
      BEGIN IMMEDIATE;
      DELETE FROM "Message" WHERE "position" > ${2 * turns};
      DELETE FROM "Execution" WHERE "queueSeq" > ${turns};
      UPDATE "Session" SET "lastQueueSeq" = ${turns};
      COMMIT`)
  const { chatId, sessionId } = first
  return async () => {
    forget()
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

/** What the last nine turns take, as the setting counts: both prompts are of them. */
const NINE = String(Math.ceil((FEW * 2 * (MESSAGE.length + 2)) / 4))

export const turnRows: Row[] = [
  row('turns', '1,001st run of a session, as much told', { MAX_HISTORY_TOKENS: NINE }, { of: 'ratio', atMost: 1.2 }),
  row('turns-told', '1,001st run, told 1,000 messages', { MAX_HISTORY_TOKENS: '1000000' }),
]
