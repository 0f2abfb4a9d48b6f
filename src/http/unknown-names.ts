import { AppError, unknownParameter } from '../errors.ts'
import { nearest } from '../lib/nearest.ts'
import { toPrintable } from '../lib/text.ts'
import type { Context } from '../trpc.ts'

// Reports unknown names in REST requests instead of ignoring them (contract-2.md section 1.3).

/** Parameters that caches and trackers add to addresses. */
const ADDED = /^(_$|utm_)/
/** Fields that clients of the hosted original send to operations that do not use them. */
const ALIASES: ReadonlySet<string> = new Set(['characterId', 'system_message', 'disabledTools', 'advanced_tools'])
/** Maximum number of warnings about fields in one response. */
const MAX_WARNINGS = 20

/** Returns whether a parameter was added by a cache or tracker. */
export const isAdded = (name: string): boolean => ADDED.test(name)

/** Returns the 400 for a query parameter that the operation does not have. */
export function refuseParameter(name: string, known: Iterable<string>): AppError {
  const names = [...known]
  const like = nearest(name, names)
  const listed = names.length ? `The parameters here are: ${names.join(', ')}` : 'There are no parameters here'
  return unknownParameter(toPrintable(name), like ? `Did you mean ${like}?` : listed)
}

/** Checks the query of a route without a procedure. Throws 401 first, then 400 for a parameter outside `known`. */
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

/** Returns one warning for each unknown field of the request. */
export const warningsOf = (fields: readonly string[]): string[] =>
  fields.slice(0, MAX_WARNINGS).map((name) => toPrintable(`Unknown field: ${name}`))

/**
 * Adds the unknown field of a request to the detail of a 400. For a missing field it is the whole detail, because it
 * may be the misspelt name.
 */
export function explainByFields(error: AppError, fields: readonly string[], known: Iterable<string>): AppError {
  const [field] = fields
  if (error.status !== 400 || field === undefined) return error
  const like = nearest(field, known)
  const unknown = `${toPrintable(`Unknown field: ${field}`)}${like ? `. Did you mean ${like}?` : ''}`
  const isWhole = error.detail === undefined || error.code === 'missing_field'
  const detail = isWhole ? unknown : `${error.detail} ${unknown}`
  const { message, code, headers, cause } = error
  return new AppError(400, message, { code, detail, headers: { ...headers }, cause })
}
