import type { IncomingMessage, ServerResponse } from 'node:http'
import { type DoorName, type DoorRoute, findDoorRoute } from '../http/door-routes.ts'
import { percentDecoded } from '../lib/text.ts'
import type { Context } from '../trpc.ts'

// The doors for clients of other protocols (contract-2.md section 6). Each is a translator over the same procedures and
// the same event log, in a folder of its own, and is imported at its first request.

/** The route of a request: its definition, its path, and the decoded parameters of the path. */
export type RouteMatch = { route: DoorRoute; path: string; parameters: readonly string[] }

/** Answers a request of another protocol. Throws an AppError that its protocol has no form for. */
export type Door = (context: Context, req: IncomingMessage, res: ServerResponse, match: RouteMatch) => Promise<void>

const DOORS: Readonly<Record<DoorName, () => Promise<{ handle: Door }>>> = {
  openai: () => import('./openai/door.ts'),
  mcp: () => import('./mcp/door.ts'),
  'ai-sdk': () => import('./ai-sdk/door.ts'),
  'ag-ui': () => import('./ag-ui/door.ts'),
  a2a: () => import('./a2a/door.ts'),
}

/** The doors that are open: an import of a known module takes as long as a query. */
const opened = new Map<DoorName, Door>()

/** Returns the door of a path, or null for a path of this service's own APIs. */
export function doorOf(
  path: string,
): ((context: Context, req: IncomingMessage, res: ServerResponse) => Promise<void>) | null {
  const found = findDoorRoute(path)
  if (!found) return null
  const { route, values } = found
  const match = { route, path, parameters: values.map(percentDecoded) }
  return async (context, req, res) => (opened.get(route.door) ?? (await open(route.door)))(context, req, res, match)
}

async function open(name: DoorName): Promise<Door> {
  const { handle } = await DOORS[name]()
  opened.set(name, handle)
  return handle
}
