import { createRequire } from 'node:module'
import type { Ajv2020, ErrorObject, ValidateFunction } from 'ajv/dist/2020.js'
import { LRUCache } from 'lru-cache'
import { z } from 'zod'
import { hasLargeNumbers, parseExact, tryParseExact } from './exact-json.ts'
import { text } from './fields.ts'
import { isNested, MAX_NESTING } from './json.ts'
import { isOutOfTime, runInTime } from './run-in-time.ts'
import { asObject, type Fields, isObject } from './unknown.ts'

// Structured output: the JSON Schema that the answer of a run fits (contract-2.md section 2.5).

/** Maximum nesting of subschemas, and maximum size of a schema (bytes of JSON). */
const MAX_DEPTH = 10
const MAX_BYTES = 32 * 1024
/** Maximum duration of a check (ms), because a foreign schema may have a pathological pattern. */
const PATIENCE = 500
/** Maximum number of mismatches in a message. */
const MAX_MISFITS = 5

/** Keywords whose value is a schema, a list of schemas, or schemas by name. */
const SCHEMA_KEYWORDS = new Set([
  ...['items', 'additionalItems', 'contains', 'additionalProperties', 'unevaluatedItems', 'unevaluatedProperties'],
  ...['propertyNames', 'not', 'if', 'then', 'else', 'contentSchema', 'allOf', 'anyOf', 'oneOf', 'prefixItems'],
])
const NAMED_SCHEMAS = new Set(['properties', 'patternProperties', 'dependentSchemas', '$defs', 'definitions'])

/** Returns whether subschemas are nested more than `left` levels deep. */
function isDeep(schema: unknown, left = MAX_DEPTH): boolean {
  if (!isObject(schema)) return false
  if (left === 0) return true
  return Object.entries(schema).some(([keyword, value]) => {
    const inner = SCHEMA_KEYWORDS.has(keyword)
      ? value
      : NAMED_SCHEMAS.has(keyword)
        ? Object.values(asObject(value))
        : []
    return [inner].flat().some((each) => isDeep(each, left - 1))
  })
}

/** Compiles a pattern. Many escape more characters than the Unicode mode allows, such as `\\-`. */
const toPattern = Object.assign(
  (pattern: string, flags: string) => {
    try {
      return new RegExp(pattern, flags)
    } catch {
      return new RegExp(pattern)
    }
  },
  { code: 'new RegExp' },
)

let ajv: Ajv2020 | undefined
/** Number of schemas that it has compiled. */
let uses = 0
/**
 * Loads the validator on first use, because most installations never need it. Compiles the schema of schemas at once,
 * because the first caller's time limit could end in the middle of that.
 */
function validator(): Ajv2020 {
  if (ajv) return ajv
  const package_: { Ajv2020: typeof Ajv2020 } = createRequire(import.meta.url)('ajv/dist/2020')
  // Formats are annotations, as in the standard. References are not inlined, because that may grow exponentially.
  const options = { allErrors: true, strict: false, validateFormats: false, inlineRefs: false, logger: false } as const
  const fresh = new package_.Ajv2020({ ...options, code: { regExp: toPattern } })
  // A keyword of old drafts, which the standard now ignores.
  fresh.removeKeyword('id')
  fresh.validateSchema({})
  uses = 0
  ajv = fresh
  return ajv
}

/** Maximum number of kept validators, and of schemas that one validator compiles: it keeps parts of each for ever. */
const MAX_COMPILED = 100
const compiled = new LRUCache<string, ValidateFunction>({ max: MAX_COMPILED })

/** Compiles a schema. Throws if it is not a valid JSON Schema. */
function compile({ $schema: _, ...schema }: Fields): ValidateFunction {
  const key = JSON.stringify(schema)
  const known = compiled.get(key)
  if (known) return known
  const validate = compileCopy(JSON.parse(key) as Fields)
  if ('$async' in validate) throw new Error('$async is not a keyword of JSON Schema')
  compiled.set(key, validate)
  return validate
}

/** Compiles a copy of a schema, which the validator would otherwise keep, since it identifies schemas by object. */
function compileCopy(copy: Fields): ValidateFunction {
  if (++uses > MAX_COMPILED) ajv = undefined
  let current = validator()
  // A validator that was interrupted may be broken for every later schema.
  const renew = () => {
    ajv = undefined
    current = validator()
  }
  try {
    return runInTime(PATIENCE, () => current.compile(copy), renew)
  } finally {
    current.removeSchema(copy)
  }
}

/** Returns why a schema cannot be used, or null. */
function problemOf(schema: Fields): string | null {
  const size = Buffer.byteLength(JSON.stringify(schema))
  if (size > MAX_BYTES) return `at most ${MAX_BYTES / 1024} KB of JSON; it has ${size} bytes`
  if (isDeep(schema)) return `at most ${MAX_DEPTH} levels of nested schemas`
  try {
    compile(schema)
    return null
  } catch (error) {
    if (isOutOfTime(error)) return 'a JSON Schema that can be checked quickly'
    const reason = error instanceof Error ? error.message : String(error)
    return `a JSON Schema (2020-12): ${reason.slice(0, 300)}`
  }
}

const name = text(64).regex(/^[\w-]+$/, {
  error: 'Invalid value for field: output.name. Expected letters, digits, _ and -',
})

const schema = z.record(z.string(), z.unknown())

/** Requested structured output. A schema that is unusable, too deep or too long is a 400 that says why. */
export const NewOutput = z
  .object({
    schema: schema
      .check((payload) => {
        const problem = problemOf(payload.value)
        if (problem === null) return
        const message = `Invalid value for field: output.schema. Expected ${problem}`
        payload.issues.push({ code: 'custom', message, input: payload.value })
      })
      .describe('JSON Schema (2020-12) that the answer fits: at most 10 levels deep and 32 KB long'),
    name: name.nullish().describe('Name of the answer, which some providers show to the model. Default: `answer`'),
  })
  .meta({ id: 'OutputInput', description: 'Form of the answer: JSON that fits a schema' })

/** Structured output as stored and returned. */
export const Output = z
  .object({
    schema: schema.describe('JSON Schema that the answer fits'),
    name: z.string().nullish().describe('Name of the answer'),
  })
  .meta({ id: 'Output', description: 'Form of an answer: JSON that fits a schema' })
export type Output = z.output<typeof Output>

/** Reads a stored output. Columns and old versions without one have null or `{}`. */
export const outputOf = (stored: unknown): Output | null =>
  isObject(asObject(stored).schema) ? (stored as Output) : null

/** Returns the value for the column of an output. */
export const toOutputColumn = (output: Output | null): Fields => output ?? {}

/** Describes where a value does not fit. Quotes the schema only. */
function describe({ instancePath, message = 'does not fit', params }: ErrorObject): string {
  const { additionalProperty, unevaluatedProperty, allowedValues, allowedValue } = asObject(params)
  const name = additionalProperty ?? unevaluatedProperty
  const expected = allowedValues ?? allowedValue
  const more =
    name === undefined ? (expected === undefined ? '' : `: ${JSON.stringify(expected)}`) : `: ${String(name)}`
  return `${instancePath || 'the answer'} ${message}${more}`.slice(0, 300)
}

/** A parsed answer, or the reason why it does not fit. */
export type Parsed = { value: unknown; problem: null } | { problem: string }

const TOO_SLOW = 'the check of the answer took too long'

/** Parses an answer and checks it against the schema of the output. */
export function parseAnswer({ schema }: Output, answer: string): Parsed {
  let value: unknown
  let plain: unknown
  try {
    const json = answer.replace(/^\ufeff/, '')
    plain = JSON.parse(json)
    value = hasLargeNumbers(json) ? parseExact(json) : plain
  } catch (error) {
    return { problem: `the answer is not JSON: ${error instanceof Error ? error.message.slice(0, 200) : ''}` }
  }
  if (isNested(plain)) return { problem: `the answer has more than ${MAX_NESTING} levels` }
  try {
    const validate = compile(schema)
    if (runInTime(PATIENCE, () => validate(plain))) return { value, problem: null }
    return { problem: (validate.errors ?? []).slice(0, MAX_MISFITS).map(describe).join('; ') }
  } catch (error) {
    return { problem: isOutOfTime(error) ? TOO_SLOW : 'the schema cannot be checked' }
  }
}

/**
 * Finds the JSON of an answer that has other text around it: in a code fence, or between the first and the last
 * bracket. Also looks into a JSON text, and into an object or a list around the value alone. Returns null if none fits
 * the schema, or if a check takes too long.
 */
export function findAnswer(output: Output, answer: string): string | null {
  const fence = answer.indexOf('\n', answer.indexOf('```'))
  const fenced = answer.includes('```') ? answer.slice(fence, answer.indexOf('\n```', fence + 1)) : undefined
  const begin = answer.search(/[{[]/)
  const end = Math.max(answer.lastIndexOf('}'), answer.lastIndexOf(']'))
  const candidates = [fenced, begin === -1 ? undefined : answer.slice(begin, end + 1), answer]
  const inner = candidates.map((json) => json && innerOf(json))
  for (const json of new Set([...candidates, ...inner])) {
    if (!json) continue
    const { problem } = parseAnswer(output, json)
    if (problem === null) return json.trim()
    // Each further check would block the process as long.
    if (problem === TOO_SLOW) break
  }
  return null
}

/** Returns the JSON inside a JSON text, or inside an object or a list of one value; undefined for any other. */
function innerOf(json: string): string | undefined {
  const value = tryParseExact(json.trim())
  if (typeof value === 'string') return value
  if (isNested(value)) return undefined
  const [inner, ...others] = typeof value === 'object' && value !== null ? Object.values(value) : []
  return inner === undefined || others.length ? undefined : JSON.stringify(inner)
}

/** Returns whether a schema follows the stricter rules of OpenAI: no additional and no optional properties. */
export function isStrict(schema: unknown): boolean {
  if (Array.isArray(schema)) return schema.every(isStrict)
  if (!isObject(schema)) return true
  const { type, properties, required, additionalProperties } = schema
  const names = Object.keys(asObject(properties))
  if (type === 'object' || names.length) {
    if (additionalProperties !== false || !Array.isArray(required)) return false
    if (names.some((each) => !required.includes(each))) return false
  }
  return Object.entries(schema).every(([keyword, value]) => {
    if (NAMED_SCHEMAS.has(keyword)) return Object.values(asObject(value)).every(isStrict)
    return !SCHEMA_KEYWORDS.has(keyword) || isStrict(value)
  })
}
