import { statSync } from 'node:fs'
import type { Logger } from 'pino'
import { databaseFile } from '../db/client.ts'
import { AppError } from '../errors.ts'
import { isUnavailable } from '../lib/database-errors.ts'
import { troubleIn } from '../lib/database-troubles.ts'
import { createLog } from '../lib/log.ts'
import { readSettings, type Settings, SettingsError } from '../settings.ts'
import { type Invocation, readArguments, UsageError } from './arguments.ts'
import type { Answer } from './command.ts'
import { AdminError } from './option-values.ts'

export type Outcome = { code: 0 | 1 | 2; out: string; err: string }

/**
 * Runs the operator's command line (contract.md section 0). Returns the output and the exit code. Throws nothing. The
 * lines that a command logs are in `err`.
 */
export async function runAdmin(argv: string[], env: Record<string, string | undefined>): Promise<Outcome> {
  let lines = ''
  const log = createLog('warn', {
    write(line) {
      lines += line
    },
  })
  try {
    const invocation = readArguments(argv)
    if (typeof invocation === 'string') return { code: 0, out: invocation, err: '' }
    const { json, text } = await perform(invocation, readSettings(env), log)
    return { code: 0, out: invocation.json ? JSON.stringify(json) : text, err: lines.trimEnd() }
  } catch (error) {
    return { code: error instanceof UsageError ? 2 : 1, out: '', err: lines + describe(error, env) }
  }
}

async function perform({ command, args, options }: Invocation, settings: Settings, log: Logger): Promise<Answer> {
  const file = databaseFile(settings)
  // Opening would create the database, and the first server start would then find an unexpected one.
  // It throws if the folder may not be read: the file may exist then.
  if (file && !statSync(file, { throwIfNoEntry: false }) && !command.usage.startsWith('restore '))
    throw new AdminError(`There is no database at ${file}. Start Muster once, or set DATA_DIR.`)
  return command.run({ settings, log, now: new Date() }, args, options)
}

/** Formats an error as one line, without a stack. */
function describe(error: unknown, env: Record<string, string | undefined>): string {
  const { message = String(error), code } = error as NodeJS.ErrnoException
  if (error instanceof SettingsError) return message
  // If several addresses failed, only the code is available.
  const line = message.trim().split('\n').at(-1) || code || message
  if (isUnavailable(error)) {
    const remedy = troubleIn(error)?.detail ?? (env.DATABASE_URL && 'Start the database, or correct DATABASE_URL.')
    return [`The database cannot be used: ${line}`, remedy].filter(Boolean).join('. ')
  }
  if (code === 'EACCES' || code === 'EPERM')
    return `${line}. Run the command as the user of the server (sudo -u USER …).`
  return error instanceof AppError && error.detail ? `${line.replace(/\.$/, '')}. ${error.detail}` : line
}
