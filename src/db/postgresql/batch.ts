import { type Connection, type FieldDef, type PoolClient, Query } from 'pg'

/** A statement as it is sent. */
export type Prepared = {
  sql: string
  /** Parameters in PostgreSQL's text format; buffers in its binary format. */
  values: readonly (string | Buffer | null)[]
  /** Name under which a connection keeps the statement prepared; empty for none. */
  name: string
  /** Whether the statement returns rows. */
  returns: boolean
}

/** The rows that a statement returned, as texts, and the number of rows that it returned or changed. */
export type Answer = { fields: readonly FieldDef[]; rows: (string | null)[][]; count: number }

/**
 * Sends statements to a connection with one Sync: one write, and one answer for all. Outside a transaction they are one
 * transaction. Rejects with the error of the first statement that fails. PostgreSQL skips those after it.
 */
export async function sendTogether(client: PoolClient, statements: readonly Prepared[]): Promise<Answer[]> {
  const { answers, error } = await sendBatch(client, statements)
  if (error) throw error
  return answers
}

/**
 * Sends statements as {@link sendTogether} does. Returns the answers of those that were executed, and the error of the
 * next one. An error beside the answers of all, such as the end of the session, came after them: if the last one is
 * COMMIT, the transaction is committed. After any other error of a statement, a transaction waits for ROLLBACK.
 */
export function sendBatch(
  client: PoolClient,
  statements: readonly Prepared[],
): Promise<{ answers: Answer[]; error: unknown }> {
  const { promise, resolve } = Promise.withResolvers<{ answers: Answer[]; error: unknown }>()
  const batch = new Batch(statements, (error) =>
    resolve({ answers: batch.answers.slice(0, batch.at), error: error ?? undefined }),
  )
  client.query(batch)
  return promise
}

type Callback = (error?: Error | null) => void

/** A prepared statement: PostgreSQL describes its columns once, since they cannot change as long as it is prepared. */
type Known = { fields: readonly FieldDef[] | null }

/** The statements of a connection by name. One is doubtful if its Parse was not confirmed. */
type Statements = Map<string, Known | 'doubtful'>

const prepared = new WeakMap<Connection, Statements>()

function knownOf(connection: Connection): Statements {
  const known = prepared.get(connection) ?? new Map()
  prepared.set(connection, known)
  return known
}

/** The part of pg's connection that sends messages, as it is; its types describe an earlier version. */
type Wire = Connection & {
  parse(statement: { text: string; name: string }): void
  bind(portal: { statement: string; values: readonly unknown[] }): void
  describe(portal: { type: 'P' }): void
  execute(portal: object): void
  close(statement: { type: 'S'; name: string }): void
  sync(): void
}

/** pg accepts only subclasses of its Query while it pipelines. */
class Batch extends Query {
  readonly statements: readonly Prepared[]
  /** Called once, when PostgreSQL is ready for the next batch or a statement fails. pg replaces it to limit the time. */
  callback: Callback
  readonly answers: Answer[]
  /** Index of the statement that is being answered. */
  at = 0
  readonly #known: Known[] = []

  constructor(statements: readonly Prepared[], callback: Callback) {
    super('')
    this.statements = statements
    this.callback = callback
    this.answers = statements.map(() => ({ fields: [], rows: [], count: 0 }))
    this.submit = (connection) => this.#write(connection as Wire)
  }

  #write(wire: Wire): void {
    const prepared = knownOf(wire)
    wire.stream.cork()
    for (const [index, { sql, values, name, returns }] of this.statements.entries()) {
      let known = prepared.get(name)
      if (known === 'doubtful') wire.close({ type: 'S', name })
      if (!known || known === 'doubtful') {
        wire.parse({ text: sql, name })
        known = { fields: null }
        if (name) prepared.set(name, known)
      }
      this.#known.push(known)
      wire.bind({ statement: name, values })
      if (known.fields) this.answers[index]!.fields = known.fields
      else if (returns) wire.describe({ type: 'P' })
      wire.execute({})
    }
    wire.sync()
    wire.stream.uncork()
  }

  handleRowDescription({ fields }: { fields: FieldDef[] }): void {
    this.answers[this.at]!.fields = fields
    this.#known[this.at]!.fields = fields
  }

  handleDataRow({ fields }: { fields: (string | null)[] }): void {
    this.answers[this.at]!.rows.push(fields)
  }

  handleCommandComplete({ text }: { text: string }): void {
    this.answers[this.at++]!.count = countOf(text)
  }

  handleEmptyQuery(): void {
    this.at++
  }

  handleReadyForQuery(): void {
    this.callback()
  }

  /** The statements from the failed one on may not be prepared: PostgreSQL has skipped them. */
  handleError(error: Error, connection: Connection): void {
    const known = knownOf(connection)
    for (const { name } of this.statements.slice(this.at)) if (known.has(name)) known.set(name, 'doubtful')
    this.callback(error)
  }
}

/** Returns the number at the end of a command tag, such as `INSERT 0 1`. */
function countOf(tag: string): number {
  const digits = tag.slice(tag.lastIndexOf(' ') + 1)
  return Number(digits) || 0
}
