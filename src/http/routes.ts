import { z } from 'zod'
import { type Actor, requireScope } from '../auth/actor.ts'
import { unwrap } from '../lib/fields.ts'
import type { Fields } from '../lib/unknown.ts'
import type { Context } from '../trpc.ts'
import { callerOf, type Procedure } from './call.ts'
import { APPROVAL_CHANGES_PATH, streamPathOf, TASK_CHANGES_PATH } from './paths.ts'
import { procedures } from './procedures.ts'

/** A procedure by its REST method and path. */
export type Route = {
  method: string
  /** Documented path with parameter names. */
  pattern: string
  /** Query parameters that are lists even if given once. */
  lists: ReadonlySet<string>
  /** Query parameters that are used beside a body; null for all. */
  inQuery: ReadonlySet<string> | null
  /** All known names of the query or body; null if undetermined. */
  known: ReadonlySet<string> | null
  /** Whether the route reads a single resource, which has an ETag. */
  isSingle: boolean
  /** Throws 403 for a token without any of the scopes. */
  checkScope: (actor: Actor) => void
  /** Authenticates and authorizes the caller before the input is checked. */
  admit: (ctx: Context) => Promise<unknown>
  /** Whether the body can request a stream, because the route starts a run. */
  canStream: boolean
  /** Whether it always answers with the stream of the run: a path of {@link streamPathOf}. */
  isStream: boolean
  /** Calls the procedure like any other API. Throws a TRPCError. */
  call: (ctx: Context, getRawInput: () => Promise<unknown>) => Promise<unknown>
}

/** A node of the path tree. A literal segment takes precedence over a parameter. */
type Node = { children: Map<string, Node>; parameter: Node | null; routes: Map<string, Route & { names: string[] }> }

const WITH_BODY: ReadonlySet<string> = new Set(['POST', 'PUT', 'PATCH'])

/** Paths of single resources that end with a name. */
const SINGLE: ReadonlySet<string> = new Set([
  '/api/v1/profile',
  '/api/v1/organizations/{id}/policy',
  '/api/v1/spaces/{id}/files/content',
])

const ADMISSIONS: Readonly<Record<string, Route['admit']>> = {
  actor: (ctx) => ctx.identify(),
  person: (ctx) => ctx.person(),
  everybody: async (ctx) => ctx.requireOwnPage(),
}

const isList = (field: z.ZodType): boolean => unwrap(field) instanceof z.ZodArray

/** Returns whether a field of a body comes from the query, by the same rule as http/openapi.ts. */
const isInQuery = (field: z.ZodType): boolean => field.meta()?.param?.in === 'query'

const PARAMETER = /\{(\w+)\}/g
const namesIn = (pattern: string) => [...pattern.matchAll(PARAMETER)].map(([, name = '']) => name)

const node = (): Node => ({ children: new Map(), parameter: null, routes: new Map() })

const root = node()
/** The routes by the names of their procedures. */
const byProcedure = new Map<string, Route>()
for (const [path, procedure] of Object.entries(procedures)) {
  const { method, path: pattern } = procedure._def.meta?.openapi ?? {}
  if (!method || !pattern) continue
  const route = toRoute(path, procedure, method, pattern)
  add(route)
  byProcedure.set(path, route)
  if (route.canStream) add({ ...route, pattern: streamPathOf(pattern), isStream: true })
}

// Streams are no routes, and their names are no ids.
for (const path of [TASK_CHANGES_PATH, APPROVAL_CHANGES_PATH]) placeOf(path)

/** Adds a route at its pattern. */
function add(route: Route): void {
  const { place, names } = placeOf(route.pattern)
  place.routes.set(route.method, { ...route, names })
}

/** Finds or creates the node of a pattern. Returns it with the names of its parameters. */
function placeOf(pattern: string): { place: Node; names: string[] } {
  let place = root
  const names: string[] = []
  for (const segment of pattern.split('/').slice(1)) {
    const [, name] = /^\{(\w+)\}$/.exec(segment) ?? []
    if (name) names.push(name)
    const next = name ? (place.parameter ?? node()) : (place.children.get(segment) ?? node())
    if (name) place.parameter = next
    else place.children.set(segment, next)
    place = next
  }
  return { place, names }
}

function toRoute(path: string, procedure: Procedure, method: string, pattern: string): Route {
  const { inputs, meta } = procedure._def
  const names = namesIn(pattern)
  return {
    method,
    pattern,
    isSingle: method === 'GET' && (pattern.endsWith('}') || SINGLE.has(pattern)),
    checkScope: (actor) => void (meta?.scopes?.length && requireScope(actor, ...meta.scopes)),
    lists: namesOf(inputs, isList),
    inQuery: WITH_BODY.has(method) ? namesOf(inputs, isInQuery) : null,
    known: knownNames(inputs, names),
    admit: ADMISSIONS[meta?.admits ?? 'actor'] ?? ADMISSIONS.actor!,
    canStream: namesOf(inputs, () => true).has('stream'),
    isStream: false,
    call: callerOf(procedure, path),
  }
}

/** Finds the route of a request with its path parameters; null if there is none. */
export function findRoute(method: string, path: string): { route: Route; parameters: Record<string, string> } | null {
  const { place, values } = findPlace(path)
  const route = place?.routes.get(method)
  if (!route) return null
  return { route, parameters: Object.fromEntries(route.names.map((name, index) => [name, values[index]!])) }
}

/** Finds the route of a procedure, such as `agents.create`; null if it has none. */
export const routeOf = (procedure: string): Route | null => byProcedure.get(procedure) ?? null

/** Returns the concrete path of a request to a route, and the parameters in it; null if the input has not all of them. */
export function locate({ pattern }: Pick<Route, 'pattern'>, input: Fields) {
  const values = Object.fromEntries(namesIn(pattern).map((name) => [name, input[name]]))
  if (!Object.values(values).every((value) => typeof value === 'string')) return null
  const parameters = values as Record<string, string>
  return { path: pattern.replace(PARAMETER, (_, name: string) => parameters[name]!), parameters }
}

/** Returns whether a method takes an Idempotency-Key. */
export const takesKey = (method: string): boolean => method === 'POST' || isChange(method)

/** Returns whether a method changes an existing resource, and so can have an If-Match. */
export const isChange = (method: string): boolean => method === 'PATCH' || method === 'DELETE'

/** Lists the methods of the procedures at a path. */
export const methodsAt = (path: string): string[] => [...(findPlace(path).place?.routes.keys() ?? [])]

function findPlace(path: string): { place: Node | null; values: string[] } {
  const segments = path.split('/')
  const values: string[] = []
  let place: Node | null = root
  for (let index = 1; place && index < segments.length; index++) {
    const segment = segments[index]!
    const named = place.children.get(segment)
    if (!named && segment) values.push(segment)
    place = named ?? (segment ? place.parameter : null)
  }
  return { place, values }
}

/** Returns the names of all input fields except path parameters; null if an input is not an object. */
function knownNames(inputs: readonly z.ZodType[], inPath: readonly string[]): ReadonlySet<string> | null {
  if (!inputs.map(unwrap).every((input) => input instanceof z.ZodObject)) return null
  const names = namesOf(inputs, () => true)
  return new Set([...names].filter((name) => !inPath.includes(name)))
}

/** Returns the names of matching input fields, inside any wrappers. */
function namesOf(inputs: readonly z.ZodType[], which: (field: z.ZodType) => boolean): ReadonlySet<string> {
  const objects = inputs.map(unwrap).filter((input) => input instanceof z.ZodObject)
  const fields = objects.flatMap(({ shape }) => Object.entries(shape as Record<string, z.ZodType>))
  return new Set(fields.flatMap(([name, field]) => (which(field) ? name : [])))
}
