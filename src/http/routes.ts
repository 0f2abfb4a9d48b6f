import { z } from 'zod'
import { appRouter } from '../router.ts'
import type { Context } from '../trpc.ts'
import { callerOf, type Procedure } from './call.ts'

type Described = Procedure & {
  _def: { inputs: z.ZodType[]; meta?: { openapi?: { method?: string; path?: string } } }
}

/** A procedure by its REST method and path. */
export type Route = {
  /** Its path as it is documented, with the names of its parameters. */
  pattern: string
  /** Which of the query's names are lists, though they be given once. */
  lists: ReadonlySet<string>
  /** Calls the procedure as any other face does. Throws a TRPCError. */
  call: (ctx: Context, getRawInput: () => Promise<unknown>) => Promise<unknown>
}

/** What stands at a place in a path: a name of its own wins over a parameter. */
type Node = { children: Map<string, Node>; parameter: Node | null; routes: Map<string, Route & { names: string[] }> }

const node = (): Node => ({ children: new Map(), parameter: null, routes: new Map() })

const root = node()
for (const [path, procedure] of Object.entries(appRouter._def.procedures as unknown as Record<string, Described>)) {
  const { inputs, meta } = procedure._def
  const { method, path: pattern } = meta?.openapi ?? {}
  if (!method || !pattern) continue
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
  place.routes.set(method, {
    pattern,
    names,
    lists: new Set(inputs.flatMap(listsOf)),
    call: callerOf(procedure, path),
  })
}

/** The route of a request, with what its path says; null when there is none. A slash at the end is passed over. */
export function findRoute(method: string, path: string): { route: Route; parameters: Record<string, string> } | null {
  const segments = path.split('/')
  if (segments.at(-1) === '') segments.pop()
  const values: string[] = []
  let place: Node | null = root
  for (let index = 1; place && index < segments.length; index++) {
    const segment = segments[index]!
    const named = place.children.get(segment)
    if (!named && segment) values.push(segment)
    place = named ?? (segment ? place.parameter : null)
  }
  const route = place?.routes.get(method)
  if (!route) return null
  return { route, parameters: Object.fromEntries(route.names.map((name, index) => [name, values[index]!])) }
}

/** The fields of an input that are lists, however they are wrapped. */
function listsOf(input: z.ZodType): string[] {
  const object = unwrap(input)
  if (!(object instanceof z.ZodObject)) return []
  return Object.entries(object.shape).flatMap(([name, field]) => (unwrap(field) instanceof z.ZodArray ? name : []))
}

function unwrap(schema: z.core.$ZodType): z.core.$ZodType {
  const def = schema._zod.def as { innerType?: z.core.$ZodType; in?: z.core.$ZodType }
  const inner = def.innerType ?? def.in
  return inner ? unwrap(inner) : schema
}
