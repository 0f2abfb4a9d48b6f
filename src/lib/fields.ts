import { z } from 'zod'
import { badRequest } from '../errors.ts'
import { MAX_NESTING } from './json.ts'

// Building blocks of request bodies.

/** Creates a boolean. */
export const bool = () => z.boolean()
/** Creates an integer between two bounds. */
export const int = (min: number, max: number) => z.int().min(min).max(max)

/**
 * Rejects input that is nested too deep (contract.md section 1, "Limits") and text that PostgreSQL cannot store: NUL
 * (in a path with the message of contract.md section 6) and unpaired surrogates. Applies to the value and the name of
 * every field in every API.
 */
export function checkInput(value: unknown, depth = 1, field = ''): void {
  if (typeof value === 'string') checkText(value, field)
  if (typeof value !== 'object' || value === null) return
  if (depth > MAX_NESTING) {
    throw badRequest(`Request body too deep. At most ${MAX_NESTING} levels`, {
      detail: 'Send flatter JSON, or the deep part as text.',
    })
  }
  for (const [name, item] of Object.entries(value)) {
    checkText(name)
    checkInput(item, depth + 1, name)
  }
}

function checkText(text: string, field = ''): void {
  if (text.includes('\0')) {
    throw badRequest(field === 'path' ? 'Invalid path' : 'Invalid character in request: U+0000', {
      detail: `Remove the character U+0000${field ? ` of \`${field}\`` : ''}: databases cannot store it.`,
    })
  }
  if (!text.isWellFormed()) {
    throw badRequest('Invalid character in request: an unpaired surrogate', {
      detail: 'Half of a character beyond U+FFFF was cut off. Cut texts between characters.',
    })
  }
}

/** Returns whether a value counts as missing: absent, null, empty or blank (contract.md section 1). */
const isMissing = (given: unknown): boolean =>
  typeof given === 'string' ? given.trim() === '' : given === undefined || given === null

const missing = ({ path }: z.core.$ZodRawIssue) => `Missing required field: ${(path ?? []).join('.')}`

/** Creates a required string. A blank one counts as missing. */
export const requiredText = (max: number) =>
  z
    .string()
    .max(max)
    .refine((text) => !isMissing(text), { error: missing })
    .meta({ minLength: 1, pattern: '\\S' })

/**
 * Creates a required choice of words. A blank value counts as missing. `otherwise` is the message for any other value.
 */
export const requiredEnum = <const Values extends readonly string[]>(words: Values, otherwise?: string) =>
  z.enum(words, { error: (issue) => (isMissing(issue.input) ? missing(issue) : otherwise) })

/** Creates a text of at most `max` characters, which may be empty. */
export const text = (max: number) => z.string().max(max)

/** Default maximum length of a list in a request. */
export const MAX_ITEMS = 100

const HTTP_ADDRESS = /^https?:\/\/[^\s\p{Cc}]+$/iu
const DATA_IMAGE = /^data:image\/(?:png|jpeg|gif|webp|avif);base64,[A-Za-z0-9+/]+={0,2}$/
const MEDIA_ID = /^[0-9A-Za-z]{22}$/
/** Maximum length of an image in `data:` form (characters): some 3 KB of picture, which no list has to cut. */
const MAX_DATA_IMAGE = 4_000
const MAX_ADDRESS = 2_000

const isImage = (image: string): boolean =>
  MEDIA_ID.test(image) ||
  (image.length <= MAX_ADDRESS && HTTP_ADDRESS.test(image) && URL.canParse(image)) ||
  DATA_IMAGE.test(image)

const IMAGE_DETAIL =
  `An image is an http or https address of at most ${MAX_ADDRESS} characters, the id of an uploaded media, or ` +
  `data:image/<png|jpeg|gif|webp|avif>;base64 of at most ${MAX_DATA_IMAGE} characters. Upload larger pictures as media.`

/**
 * Creates a picture field of an agent or a user. Other schemes are rejected, because clients embed the address in
 * pages.
 */
export const image = () =>
  z
    .string()
    .max(MAX_DATA_IMAGE)
    .refine((image) => image === '' || isImage(image), {
      error: ({ path }) =>
        `Invalid value for field: ${(path ?? []).join('.')}. Expected an http(s) address, a data image or a media id`,
      params: { detail: IMAGE_DETAIL },
    })
    .describe('Picture: http(s) address, id of a media, or `data:image/…;base64,`')

/** Creates a list of short strings. Duplicates are removed; the order is preserved. */
export const textList = (maxItems = MAX_ITEMS, maxLength = 200) =>
  z
    .array(z.string().min(1).max(maxLength))
    .max(maxItems)
    .transform((items) => [...new Set(items)])

/** Creates a number in a query string. */
export const queryInt = (min: number, max: number) => z.coerce.number<number>().int().min(min).max(max)

export const timestamp = z.iso.datetime()

const [TIME, OFFSET] = [':', ':?'].map((colon) => `([01]\\d|2[0-3])${colon}[0-5]\\d`)
const DATE = z.regexes.date.source.slice(1, -1)

/**
 * A point in time from a client: an ISO 8601 date (UTC), or a date and time with an offset. RFC 3339 also allows a
 * blank and small letters, as `str()` of Python writes.
 */
export const moment = new z.ZodISODateTime({
  type: 'string',
  format: 'datetime',
  check: 'string_format',
  offset: true,
  local: false,
  precision: null,
  pattern: new RegExp(`^${DATE}([Tt ]${TIME}(:[0-5]\\d(\\.\\d+)?)?([Zz]|[+-]${OFFSET}))?$`),
}).overwrite((text) => text.replace(/(?<=^.{10})[t ]/, 'T').replace('z', 'Z'))

const [FIRST, LAST] = [Date.parse('0001-01-01T00:00:00.000Z'), Date.parse('9999-12-31T23:59:59.999Z')]

/**
 * Description of valid points in time after the offset is applied: ISO 8601 years have four digits, and PostgreSQL has
 * no year 0.
 */
export const IN_RANGE = 'a date in the years 1 to 9999 (UTC)'

/** Returns whether a point in time is {@link IN_RANGE}. */
export const isInRange = (moment: Date): boolean => moment.getTime() >= FIRST && moment.getTime() <= LAST

/** Checks a date or time from a client. */
export const inRange = z.refine<string>((text) => isInRange(new Date(text)), {
  error: ({ path }) => `Invalid value for field: ${(path ?? []).join('.')}. Expected ${IN_RANGE}`,
})

/** Returns the schema inside optional, nullable, defaults and the like; for a transformation, its input. */
export function unwrap(schema: z.core.$ZodType): z.ZodType {
  const { innerType, in: taken } = schema._zod.def as { innerType?: z.core.$ZodType; in?: z.core.$ZodType }
  const inner = innerType ?? taken
  return inner ? unwrap(inner) : (schema as z.ZodType)
}

/** One schema for all outputs, because schemas take memory and time at the start. */
const success = z.literal(true).default(true).describe('Always true')

/** Creates the output of a procedure: `success: true` beside its fields (service.md, "What the service does"). */
export const ok = <Shape extends z.ZodRawShape>(shape: Shape) => z.object({ success, ...shape })

/** Format of an Idempotency-Key (contract.md section 1), in the header and in a field. */
export const IDEMPOTENCY_KEY = /^[\x20-\x7e]{1,255}$/
export const INVALID_IDEMPOTENCY_KEY = 'Invalid Idempotency-Key. Must be 1-255 printable ASCII characters'
