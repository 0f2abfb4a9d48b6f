import { Ajv2020, type ValidateFunction } from 'ajv/dist/2020.js'
import addFormats from 'ajv-formats'
import type { oas31 } from 'zod-openapi'
import { createDocument } from '../../src/http/openapi.ts'
import { NO_SAMPLE } from '../../src/http/openapi-examples.ts'

export const document = createDocument({ PUBLIC_URL: undefined, TOKEN_PREFIX: 'mst' })

const ajv = new Ajv2020({ strict: true, allowUnionTypes: true, allErrors: true })
addFormats.default(ajv)
// Makes Ajv ignore the document's own fields and its hints to generators.
ajv.addVocabulary([...Object.keys(document), 'discriminator']).addSchema({ ...document, $id: 'openapi' })

/** Answers of the HTTP parser and of the check of the host, which precede routing. */
const BEFORE_ROUTING = [408, 421, 431]

type Operation = { template: string; path: RegExp; method: string; responses: Record<string, unknown> }

const operations: Operation[] = Object.entries(document.paths ?? {}).flatMap(([template, item]) =>
  Object.entries(item as Record<string, oas31.OperationObject>).map(([method, { responses }]) => ({
    template,
    path: new RegExp(`^${template.replace(/\{\w+\}/g, '[^/]+')}/?$`),
    method: method.toUpperCase(),
    responses: responses as Record<string, unknown>,
  })),
)

const validators = new Map<string, ValidateFunction>()

/** The validator of the schema at a JSON pointer into the document. */
function compile(pointer: string[]): ValidateFunction {
  const fragment = pointer.map((part) => encodeURIComponent(part.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')
  const $ref = `openapi#/${fragment}`
  const validate = validators.get($ref) ?? ajv.compile({ $ref })
  validators.set($ref, validate)
  return validate
}

function check(pointer: string[], value: unknown): void {
  const validate = compile(pointer)
  if (!validate(value)) throw new Error(ajv.errorsText(validate.errors, { dataVar: 'body' }))
}

const find = (pointer: string[]): unknown =>
  pointer.reduce<unknown>((value, part) => (value as Record<string, unknown>)[part], document)

/** The pointer to the response object, after all references. */
function locate(pointer: string[]): { pointer: string[]; response: oas31.ResponseObject } {
  const response = find(pointer) as oas31.ResponseObject | oas31.ReferenceObject
  return '$ref' in response ? locate(response.$ref.slice(2).split('/')) : { pointer, response }
}

/** The complete events of a stream, as a client receives them, without comments. */
const parseEvents = (text: string) =>
  text.split('\n\n').flatMap((block, index, { length }) => {
    if (index === length - 1 || block.startsWith(':')) return []
    const fields = Object.fromEntries(block.split('\n').map((line) => line.split(/: (.*)/s, 2)))
    // The end of a stream of another protocol.
    if (fields.data === '[DONE]') return []
    return [{ ...fields, data: JSON.parse(fields.data ?? 'null') }]
  })

function checkResponse(pointer: string[], headers: Headers, body: unknown): void {
  const located = locate(pointer)
  checkHeaders(located.response, headers)
  if (!located.response.content && !body) return
  const contentType = headers.get('content-type')?.split(';', 1)[0] ?? 'no content type'
  const type = located.response.content?.['*/*'] ? '*/*' : contentType
  if (!located.response.content?.[type]) throw new Error(`${type} is not among its content types`)
  const schema = [...located.pointer, 'content', type, 'schema']
  if (type === 'application/x-ndjson') {
    for (const line of String(body).split('\n')) if (line) check(schema, JSON.parse(line))
  } else if (type !== 'text/event-stream') check(schema, body)
  else {
    for (const { event, data } of parseEvents(String(body))) {
      if (event !== undefined && data.type !== event) throw new Error(`the event ${event} says that it is ${data.type}`)
      check(schema, data)
    }
  }
}

function checkHeaders(response: oas31.ResponseObject, headers: Headers): void {
  for (const name of Object.keys(response.headers ?? {})) {
    const header = document.components?.headers?.[name] as oas31.HeaderObject
    const value = headers.get(name)
    if (value === null && header.required) throw new Error(`the header ${name} is missing`)
    if (value !== null) check(['components', 'headers', name, 'schema'], value)
  }
}

/**
 * Throws unless the OpenAPI document declares this answer: the operation, the status by its number, the content type,
 * the headers, and a body that fits the schema. `body` is the parsed JSON, or the text of a stream. A path without an
 * operation must give 404 or 405 with the error body.
 */
export function expectDocumented(method: string, path: string, status: number, headers: Headers, body: unknown): void {
  const { pathname } = new URL(path, 'http://localhost')
  const [documented] = operations
    .filter((candidate) => candidate.method === method && candidate.path.test(pathname))
    .sort((a, b) => a.template.split('{').length - b.template.split('{').length)
  // With `stream: true` a path answers as its streaming variant.
  const isStream = headers.get('content-type')?.startsWith('text/event-stream')
  const sibling = isStream && operations.find(({ template }) => template === `${documented?.template}/stream`)
  const operation = sibling || documented
  const key = BEFORE_ROUTING.includes(status) ? 'default' : String(status)
  try {
    if (!operation) {
      const response = { 404: 'NotFound', 405: 'MethodNotAllowed' }[status]
      if (!response) throw new Error('the operation is not in the document')
      checkResponse(['components', 'responses', response], headers, body)
    } else {
      if (!operation.responses[key]) throw new Error('the status is not among its responses')
      checkResponse(['paths', operation.template, method.toLowerCase(), 'responses', key], headers, body)
    }
  } catch (error) {
    throw new Error(`${method} ${path} ${status}: ${(error as Error).message}`, { cause: error })
  }
}

/** Throws unless all components compile in Ajv's strict mode, references included. */
export function expectEverySchemaToCompile(): void {
  for (const name of Object.keys(document.components?.schemas ?? {})) compile(['components', 'schemas', name])
}

/** Throws unless every JSON body and success answer has a complete example that fits its schema. */
export function expectExamples(): void {
  for (const { template, method, responses } of operations) {
    const pointer = ['paths', template, method.toLowerCase()]
    const { requestBody } = find(pointer) as oas31.OperationObject
    const places = [
      ...(requestBody ? [[...pointer, 'requestBody', 'content']] : []),
      ...Object.keys(responses).flatMap((status) =>
        status.startsWith('2') ? [[...pointer, 'responses', status, 'content']] : [],
      ),
    ]
    for (const place of places) {
      for (const [type, { example }] of Object.entries((find(place) ?? {}) as Record<string, oas31.MediaTypeObject>)) {
        if (!/json|event-stream/.test(type)) continue
        const text = JSON.stringify(example)
        if (text === undefined) throw new Error(`${place.join(' ')} has no example`)
        if (text.includes(`"${NO_SAMPLE}"`)) throw new Error(`A sample is missing in ${place.join(' ')}: ${text}`)
        try {
          check([...place, type, 'schema'], example)
        } catch (error) {
          throw new Error(`${place.join(' ')}: ${(error as Error).message}: ${text}`)
        }
      }
    }
  }
}

/** The example of a JSON request, which must fit its schema; undefined without one. */
export function exampleOf(method: string, path: string): object | undefined {
  const pointer = ['paths', path, method.toLowerCase(), 'requestBody', 'content', 'application/json']
  const { example } = find(pointer) as oas31.MediaTypeObject
  if (example !== undefined) check([...pointer, 'schema'], example)
  return example
}
