import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Context } from '../trpc.ts'

// The doors for clients of other protocols (contract-2.md section 6). Each is a translator over the same procedures and the
// same event log, in a folder of its own, and is imported at its first request.

/** Answers a request of another protocol. Throws an AppError that its protocol has no form for. */
export type Door = (context: Context, req: IncomingMessage, res: ServerResponse) => Promise<void>

type Entry = {
  /** Paths of the door. */
  pattern: RegExp
  open: () => Promise<{ handle: Door }>
  /** The door once it is open: an import of a known module takes as long as a query. */
  door?: Door
}

const DOORS: readonly Entry[] = [
  { pattern: /^\/openai\/v1(?:\/|$)/, open: () => import('./openai/door.ts') },
  { pattern: /^\/mcp(?:\/agents\/[^/]+)?\/?$/, open: () => import('./mcp/door.ts') },
  { pattern: /^\/api\/v1\/agents\/[^/]+\/chat/, open: () => import('./ai-sdk/door.ts') },
  { pattern: /^\/api\/v1\/agents\/[^/]+\/ag-ui\/?$/, open: () => import('./ag-ui/door.ts') },
  {
    pattern: /^\/a2a\/agents\/[^/]+(?:\/\.well-known\/agent(?:-card)?\.json)?\/?$/,
    open: () => import('./a2a/door.ts'),
  },
]

/** Matches the paths of all doors, for a fast refusal of any other. */
const ANY = /^\/(?:openai|mcp|a2a)(?:\/|$)|^\/api\/v1\/agents\/[^/]+\/(?:chat|ag-ui)(?:\/|$)/

/** Returns the door of a path, or null for a path of this service's own APIs. */
export function doorOf(path: string): Door | null {
  if (!ANY.test(path)) return null
  const entry = DOORS.find(({ pattern }) => pattern.test(path))
  if (!entry) return null
  return entry.door ?? (async (context, req, res) => (await open(entry))(context, req, res))
}

async function open(entry: Entry): Promise<Door> {
  const { handle } = await entry.open()
  entry.door = handle
  return handle
}
