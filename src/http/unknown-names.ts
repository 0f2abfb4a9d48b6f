import { AppError, unknownParameter } from '../errors.ts'
import { nearest } from '../lib/nearest.ts'
import type { Context } from '../trpc.ts'

// Nothing that a REST request names is ignored silently (contract-2.md section 1.3).

/** Names that caches and trackers add to addresses. */
const ADDED = /^(_$|utm_)/
/** Fields that clients of the hosted original send to operations that have no use for them. */
const ALIASES: ReadonlySet<string> = new Set(['characterId', 'system_message', 'disabledTools', 'advanced_tools'])
/** Maximum number of fields in one answer's warnings. */
const MAX_WARNINGS = 20
/** Maximum length of a warning (characters). */
const MAX_LENGTH = 100

/** Whether a parameter that no operation takes says nothing to it. */
export const isAdded = (name: string): boolean => ADDED.test(name)

/** Returns the 400 for a query parameter that the operation does not have. */
export function refuseParameter(name: string, known: Iterable<string>): AppError {
  const names = [...known]
  const like = nearest(name, names)
  const listed = names.length ? `The parameters here are: ${names.join(', ')}` : 'There are no parameters here'
  return unknownParameter(toPrintable(name), like ? `Did you mean ${like}?` : listed)
}

/** Checks the query of a route without a procedure. Throws 400 for a parameter that is not among `known`, 401 before. */
export async function checkQuery({ identify }: Context, url: string, known: readonly string[]): Promise<void> {
  const start = url.indexOf('?')
  if (start === -1) return
  for (const name of new URLSearchParams(url.slice(start + 1)).keys()) {
    if (known.includes(name) || isAdded(name)) continue
    await identify()
    throw refuseParameter(name, known)
  }
}

/** Lists the top-level fields of a body that its operation does not have. */
export function unknownFields(body: object, known: ReadonlySet<string> | null): string[] {
  return known ? Object.keys(body).filter((name) => !known.has(name) && !ALIASES.has(name)) : []
}

/** Returns what an answer says of unknown fields of the request, one text each. */
export const warningsOf = (fields: readonly string[]): string[] =>
  fields.slice(0, MAX_WARNINGS).map((name) => toPrintable(`Unknown field: ${name}`))

/** Names the unknown fields of a request in a 400 that has no detail: one of them may be the missing one, misspelt. */
export function explainByFields(error: AppError, fields: readonly string[], known: Iterable<string>): AppError {
  const [field] = fields
  if (error.status !== 400 || error.detail !== undefined || field === undefined) return error
  const like = nearest(field, known)
  const detail = `${toPrintable(`Unknown field: ${field}`)}${like ? `. Did you mean ${like}?` : ''}`
  const { message, code, headers, cause } = error
  return new AppError(400, message, { code, detail, headers: { ...headers }, cause })
}

const toPrintable = (text: string): string => text.replace(/[^\x20-\x7e]/g, '?').slice(0, MAX_LENGTH)
