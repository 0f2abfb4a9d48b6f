import { generateOpenApiDocument, type OpenAPIObject } from 'trpc-to-openapi'
import { z } from 'zod'
import type { oas31 } from 'zod-openapi'
import packageJson from '../../package.json' with { type: 'json' }
import { ExportAudit } from '../audit/schema.ts'
import { cookieName } from '../auth/session-cookie.ts'
import { unwrap } from '../lib/fields.ts'
import { appRouter } from '../router.ts'
import type { Settings } from '../settings.ts'
import type { Procedure } from './call.ts'
import { DOOR_OPERATIONS, DOOR_PATHS } from './openapi-doors.ts'
import { exampleOf } from './openapi-examples.ts'
import { describe, TAGS } from './openapi-introduction.ts'
import * as parts from './openapi-parts.ts'
import { PATHS } from './openapi-paths.ts'
import { STREAM, STREAM_CONTENT } from './openapi-streams.ts'
import { nameIn, type Schemas, withoutNoise, withoutTwins } from './openapi-tidy.ts'
import {
  APPROVAL_CHANGES_PATH,
  AUDIT_EXPORT_PATH,
  CHAT_EVENTS_PATH,
  CONTENT_PATH,
  EVENTS_PATH,
  FEED_STREAM_PATH,
  MEDIA_PATH,
  SPACE_UPLOAD_PATH,
  streamPathOf,
  TASK_CHANGES_PATH,
} from './paths.ts'
import { procedures } from './procedures.ts'
import { findRoute, isChange } from './routes.ts'

type Operation = oas31.OperationObject & {
  parameters?: oas31.ParameterObject[]
  requestBody?: oas31.RequestBodyObject
  responses: { 200: oas31.ResponseObject }
}

/** Subscriptions with a REST bridge that trpc-to-openapi does not know. */
const BRIDGES: Record<string, { method: string; path: string }> = {
  'approvals.changes': { method: 'GET', path: APPROVAL_CHANGES_PATH },
  'chats.events': { method: 'GET', path: CHAT_EVENTS_PATH },
  'events.follow': { method: 'GET', path: FEED_STREAM_PATH },
  'executions.events': { method: 'GET', path: EVENTS_PATH },
  'tasks.changes': { method: 'GET', path: TASK_CHANGES_PATH },
}

/** Byte streams, which are not procedures: http/media.ts. */
const BINARY: Described[] = [
  {
    name: 'media.upload',
    method: 'POST',
    path: MEDIA_PATH,
    meta: {
      scopes: ['media:write'],
      errors: { 413: 'The file is too large, or exceeds the storage of the organization', 415: 'The body is no form' },
    },
    inputs: [],
  },
  {
    name: 'client.uploadFile',
    method: 'POST',
    path: SPACE_UPLOAD_PATH,
    meta: { scopes: ['spaces:write'], errors: { 404: 'The space does not exist', 415: 'The body is no form' } },
    inputs: [],
  },
  {
    name: 'audit.export',
    method: 'GET',
    path: AUDIT_EXPORT_PATH,
    meta: { scopes: ['audit:read'] },
    inputs: [ExportAudit],
  },
  {
    name: 'media.content',
    method: 'GET',
    path: CONTENT_PATH,
    meta: { scopes: ['media:read'], errors: { 416: 'The file has no such part' } },
    inputs: [],
  },
]

/**
 * Creates the OpenAPI 3.1 document of the REST API (contract.md section 0) from the procedures. Possible responses
 * follow from method, path and input, and from the `errors` given to `restMeta()`.
 */
export function createDocument(settings: Pick<Settings, 'PUBLIC_URL' | 'TOKEN_PREFIX'>): OpenAPIObject {
  const prefix = settings.TOKEN_PREFIX
  const document = generateOpenApiDocument(appRouter, {
    title: 'Muster',
    version: packageJson.version,
    description: describe(prefix),
    license: { name: 'Apache License 2.0', identifier: packageJson.license },
    openApiVersion: '3.1.0',
    baseUrl: settings.PUBLIC_URL?.replace(/\/$/, '') ?? '/',
    securitySchemes: {
      token: {
        type: 'http',
        scheme: 'bearer',
        description: `A token that begins with \`${prefix}_\`, or an ID token of the identity provider.`,
      },
      session: {
        type: 'apiKey',
        in: 'cookie',
        name: cookieName(settings),
        description:
          'The session of a browser, made by signing in. Writes need `X-Muster-Request: 1` and the `Origin` of this service.',
      },
    },
    paths: { ...PATHS, ...DOOR_PATHS },
    defs: { ErrorResponse: parts.ErrorBody },
  })
  const schemas: Schemas = document.components?.schemas ?? {}
  for (const [name, { _def }] of Object.entries(procedures)) {
    const { method, path } = _def.meta?.openapi ?? BRIDGES[name] ?? {}
    const operation = path && method && document.paths?.[path]?.[method.toLowerCase() as 'get']
    if (!operation) continue
    complete(operation as Operation, { ..._def, name, method, path }, schemas)
    if (document.paths && findRoute(method, path)?.route.canStream) {
      document.paths[streamPathOf(path)] = { post: toStream(operation as Operation, schemas) }
    }
  }
  for (const described of [...BINARY, ...DOOR_OPERATIONS]) {
    const operation = document.paths?.[described.path]?.[described.method.toLowerCase() as 'get']
    complete(operation as Operation, described, schemas)
  }
  document.tags = Object.entries(TAGS).map(([name, description]) => ({ name, description }))
  document.components = { ...document.components, ...parts.COMPONENTS }
  const finished = withoutTwins(withoutNoise(document))
  describeReferences(finished.components?.schemas ?? {})
  addExamples(finished)
  return finished
}

type Described = Pick<Procedure['_def'], 'meta' | 'inputs'> & { name: string; method: string; path: string }

/** Completes an operation beyond the output of trpc-to-openapi. */
function complete(operation: Operation, described: Described, schemas: Schemas): void {
  const id = described.name.replace(/\.(\w)/g, (_, letter: string) => letter.toUpperCase())
  const component = id.charAt(0).toUpperCase() + id.slice(1)
  operation.operationId = id
  operation.parameters ??= []
  operation.tags = [described.name.split('.', 1)[0] ?? '']
  completeSecurity(operation, described)
  const fields = completeRequest(operation, described, schemas, component)
  completeResponses(operation, described, schemas, component, fields)
}

/** States the scopes of an operation. */
function completeSecurity(operation: Operation, { meta }: Described): void {
  const scopes = meta?.scopes ?? []
  const isOpen = meta?.admits === 'everybody'
  operation.security = isOpen ? [] : [{ token: [] }, { session: [] }]
  Object.assign(operation, { 'x-required-scopes': scopes })
  const needs = scopes.length
    ? `Needs the scope ${scopes.map((scope) => `\`${scope}\``).join(' or ')}.`
    : isOpen
      ? 'Needs no token.'
      : 'Needs a token, with any scopes.'
  operation.description = [operation.description, needs].filter(Boolean).join('\n\n')
}

/** Completes parameters and body. Returns the properties of the body. */
function completeRequest(
  operation: Operation,
  { method, inputs }: Described,
  schemas: Schemas,
  component: string,
): NonNullable<oas31.SchemaObject['properties']> {
  moveToQuery(operation, shapeOf(inputs[0]))
  // trpc-to-openapi removes `.optional()`, and with it the field's description.
  for (const parameter of operation.parameters ?? []) {
    const description = shapeOf(inputs[0])[parameter.name]?.description
    if (description) parameter.description ??= description
    if (canOnlyBeTrue(parameter.schema)) parameter.schema = { type: 'boolean', const: true }
  }
  if (method === 'DELETE') moveListsToBody(operation)
  const body = operation.requestBody?.content['application/json']
  const fields = body?.schema as oas31.SchemaObject | undefined
  if (operation.requestBody && body) operation.requestBody.required = Boolean(fields?.required?.length)
  const [example] = objectOf(inputs[0])?.meta()?.examples ?? []
  if (body && example) body.example = example as oas31.MediaTypeObject['example']
  // Zod removes them from transformed fields.
  delete fields?.examples
  moveToComponents(body, `${component}Request`, schemas)
  return fields?.properties ?? {}
}

/** Completes headers, the answer and the errors. `fields`: the properties of the body. */
function completeResponses(
  operation: Operation,
  { name, method, path, meta }: Described,
  schemas: Schemas,
  component: string,
  fields: NonNullable<oas31.SchemaObject['properties']>,
): void {
  const success = operation.responses[200]
  success.headers = parts.headers()
  if ((method === 'POST' && !meta?.admits) || isChange(method)) {
    success.headers = parts.headers('Idempotent-Replayed')
    addParameter(operation, 'Idempotency-Key')
  }
  if (isChange(method)) addParameter(operation, 'If-Match')
  if (findRoute(method, path)?.route.isSingle) {
    success.headers = parts.headers('ETag')
    addParameter(operation, 'If-None-Match')
    operation.responses = {
      ...operation.responses,
      304: { description: 'The answer still has the ETag of If-None-Match', headers: parts.headers('ETag') },
    } as Operation['responses']
  }
  const isDoor = DOOR_OPERATIONS.some((door) => door.name === name)
  if (operation.requestBody?.content['application/json'] && !isDoor) {
    Object.assign(success.headers, parts.headers('X-Muster-Warnings'))
    addWarnings(success.content?.['application/json']?.schema as oas31.SchemaObject | undefined)
  }
  if (success.description === 'Successful response') success.description = 'Success'
  moveToComponents(success.content?.['application/json'], `${component}Result`, schemas)
  if (fields.stream || isDoor) Object.assign(success.headers, parts.headers('X-Execution-Id'))
  const statuses = errorStatuses(method, path, Object.keys(fields))
  for (const status of [...statuses, ...Object.keys(meta?.errors ?? {})]) {
    Object.assign(operation.responses, { [status]: parts.errorReference(status, meta?.errors?.[Number(status)]) })
  }
}

/**
 * Returns the operation that streams what another one answers as JSON (contract-2.md section 1.14). Its body is the
 * same, without the fields that choose between the two.
 */
function toStream(operation: Operation, schemas: Schemas): Operation {
  const { operationId, requestBody, responses, ...rest } = structuredClone(operation)
  const id = `${operationId}Stream`
  const body = requestBody?.content['application/json']
  const { $ref = '' } = (body?.schema ?? {}) as oas31.ReferenceObject
  const { stream: _, background: __, ...properties } = (schemas[nameIn($ref)] as oas31.SchemaObject).properties ?? {}
  const name = `${id.charAt(0).toUpperCase()}${id.slice(1)}Request`
  schemas[name] = { ...schemas[nameIn($ref)], properties } as oas31.SchemaObject
  const schema = { $ref: `#/components/schemas/${name}` }
  return {
    ...rest,
    operationId: id,
    summary: `${rest.summary}, and stream the events of the run`,
    requestBody: { ...requestBody, content: { 'application/json': { ...body, schema } } },
    responses: {
      ...responses,
      200: { description: STREAM, headers: responses[200].headers ?? {}, content: STREAM_CONTENT },
    },
  }
}

/** Gives each property that is nothing but a reference the description of its component. */
function describeReferences(schemas: Schemas): void {
  for (const schema of Object.values(schemas)) {
    for (const property of Object.values((schema as oas31.SchemaObject).properties ?? {})) {
      if (typeof property !== 'object' || !('$ref' in property)) continue
      const { description } = (schemas[nameIn(property.$ref)] ?? {}) as oas31.SchemaObject
      if (description) property.description ??= description
    }
  }
}

/** Gives each JSON body and success answer an example, where it has none of its own. */
function addExamples(document: OpenAPIObject): void {
  const schemas: Schemas = document.components?.schemas ?? {}
  for (const item of Object.values(document.paths ?? {})) {
    for (const { requestBody, responses } of Object.values(item as Record<string, Operation>)) {
      for (const described of [requestBody, responses[200]]) {
        const json = described?.content?.['application/json']
        if (json?.schema && json.example === undefined) json.example = exampleOf(json.schema, schemas)
      }
    }
  }
}

/** Adds warnings about unknown fields to a response schema, beside its own warnings. */
function addWarnings(schema: oas31.SchemaObject | undefined): void {
  if (!schema?.properties) return
  const own = schema.properties.warnings as oas31.SchemaObject | undefined
  const items = own?.items as oas31.SchemaObject | undefined
  schema.properties.warnings = items
    ? { ...own, items: { anyOf: [items, { type: 'string', description: 'A field of the body that is unknown' }] } }
    : parts.WARNINGS
}

/** Returns whether a schema is that of a query field that can only say yes: lib/page.ts. */
const canOnlyBeTrue = (schema: oas31.ParameterObject['schema']): boolean =>
  JSON.stringify(schema) === '{"anyOf":[{"type":"string","const":"true"},{"type":"boolean"}]}'

/** Returns the error statuses of an operation, derived from its method, path and body fields. */
function errorStatuses(method: string, path: string, fields: string[]): string[] {
  const names = path.includes('{') || fields.some((field) => field.endsWith('Id'))
  return [
    ...['400', '401', '403', '429', '500', '503', 'default'],
    ...(names ? ['404'] : []),
    ...(method === 'GET' ? [] : ['413', '415']),
    ...(method === 'POST' || isChange(method) ? ['409', '422'] : []),
    ...(isChange(method) ? ['412'] : []),
  ]
}

/**
 * Documents fields of a PUT, PATCH or POST as body or query. `param` in a field's metadata places it in the query (see
 * http/routes.ts); a field whose param is a component may be in either.
 */
function moveToQuery(operation: Operation, shape: Record<string, z.ZodType>): void {
  const fields = operation.requestBody?.content['application/json']?.schema as oas31.SchemaObject | undefined
  for (const [name, schema] of Object.entries(fields?.properties ?? {})) {
    const { param } = shape[name]?.meta() ?? {}
    if (param?.in !== 'query') continue
    if (param.id) {
      addParameter(operation, param.id as keyof typeof parts.COMPONENTS.parameters)
      continue
    }
    const required = fields?.required?.includes(name) ?? false
    operation.parameters?.push({ in: 'query', name, required, schema })
    delete fields?.properties?.[name]
    if (required) fields?.required?.splice(fields.required.indexOf(name), 1)
  }
}

/** Documents fields of a DELETE as query parameters. A body is accepted too, and is the place for lists. */
function moveListsToBody(operation: Operation): void {
  const parameters: oas31.ParameterObject[] = operation.parameters ?? []
  const isList = (parameter: oas31.ParameterObject) =>
    parameter.in === 'query' && (parameter.schema as oas31.SchemaObject).type === 'array'
  const lists = parameters.filter(isList)
  if (!lists.length) return
  operation.parameters = parameters.filter((parameter) => !isList(parameter))
  const schema: oas31.SchemaObject = {
    type: 'object',
    properties: Object.fromEntries(lists.map((list) => [list.name, list.schema as oas31.SchemaObject])),
    required: lists.flatMap(({ name, required }) => (required ? name : [])),
  }
  operation.requestBody = { content: { 'application/json': { schema } } }
}

const addParameter = (operation: Operation, name: keyof typeof parts.COMPONENTS.parameters) =>
  (operation.parameters as unknown[]).push({ $ref: `#/components/parameters/${name}` })

function objectOf(schema: z.ZodType | undefined): z.ZodObject | undefined {
  const plain = schema && unwrap(schema)
  return plain instanceof z.ZodObject ? plain : undefined
}

const shapeOf = (schema: z.ZodType | undefined): Record<string, z.ZodType> =>
  (objectOf(schema)?.shape ?? {}) as Record<string, z.ZodType>

/** Moves a schema into the components, so that generated clients get a named type. */
function moveToComponents(content: oas31.MediaTypeObject | undefined, name: string, schemas: Schemas): void {
  if (!content?.schema || '$ref' in content.schema) return
  schemas[name] = content.schema
  content.schema = { $ref: `#/components/schemas/${name}` }
}
