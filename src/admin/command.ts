import type { Logger } from 'pino'
import { type Database, openDatabase } from '../db/client.ts'
import type { Settings } from '../settings.ts'
import { AdminError } from './option-values.ts'

/** Context of every command; most also have the open database. */
export type Operator = { settings: Settings; log: Logger; now: Date }

export type Admin = Operator & { database: Database }

/** Options of the command line. */
export type Options = Partial<
  Record<'org' | 'role' | 'user' | 'name' | 'slug' | 'expires' | 'expires-at' | 'to', string> & {
    scope: string[]
    yes: boolean
    'reset-password': boolean
  }
>

/** Output of a command: `json` with --json (contract.md section 0), otherwise `text`. */
export type Answer = { json: object; text: string }

export type Work<With> = (given: With, args: string[], options: Options) => Promise<Answer>

/**
 * Executes a command with the database unmigrated, because only servers migrate it and may still run the previous
 * version.
 */
export const withDatabase =
  (work: Work<Admin>): Work<Operator> =>
  async (operator, args, options) => {
    const database = await openDatabase(operator.settings, { migrate: false })
    try {
      if (await database.client.installation.findUnique({ where: { id: 1 } }))
        return await work({ ...operator, database }, args, options)
      throw new AdminError('The database is empty. Start Muster once.')
    } finally {
      await database.close()
    }
  }
