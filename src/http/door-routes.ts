import type { Scope } from '../auth/scopes.ts'

// The addresses of the doors for clients of other protocols (contract-2.md section 6). The doors are in src/protocols.

export type DoorName = 'openai' | 'mcp' | 'ai-sdk' | 'ag-ui' | 'a2a'

/** An address of a door. */
export type DoorRoute = {
  door: DoorName
  /** Documented path with parameter names. */
  path: string
  /** The methods that it answers, each with its scopes, of which any is enough. Without scopes any token is. */
  methods: Readonly<Record<string, readonly Scope[]>>
}

const RUN: readonly Scope[] = ['agents:execute']
const READ_RUN: readonly Scope[] = ['executions:read', 'agents:execute']
const END_RUN: readonly Scope[] = ['executions:write', 'agents:execute']
const MODELS: readonly Scope[] = ['agents:read', 'agents:execute']

const ADDRESSES: Readonly<Record<DoorName, Readonly<Record<string, DoorRoute['methods']>>>> = {
  openai: {
    '/openai/v1/models': { GET: MODELS },
    '/openai/v1/models/{model}': { GET: MODELS },
    '/openai/v1/chat/completions': { POST: RUN },
    '/openai/v1/responses': { POST: RUN },
    // No ids of responses: operations of OpenAI that this service does not have.
    '/openai/v1/responses/compact': {},
    '/openai/v1/responses/input_tokens': {},
    '/openai/v1/responses/{id}': { GET: READ_RUN, DELETE: END_RUN },
    '/openai/v1/responses/{id}/cancel': { POST: END_RUN },
    '/openai/v1/responses/{id}/input_items': { GET: READ_RUN },
    // Unknown paths, which get an error in the form of the protocol.
    '/openai/{rest}': {},
  },
  // Each tool has its own scopes.
  mcp: { '/mcp': { POST: [] }, '/mcp/agents/{id}': { POST: [] } },
  'ai-sdk': {
    '/api/v1/agents/{id}/chat': { POST: RUN },
    '/api/v1/agents/{id}/chat/{chatId}/stream': { GET: READ_RUN },
  },
  'ag-ui': { '/api/v1/agents/{id}/ag-ui': { POST: RUN } },
  a2a: {
    '/a2a/agents/{id}': { POST: READ_RUN },
    '/a2a/agents/{id}/.well-known/agent-card.json': { GET: [] },
    // The name of cards of version 0.2.
    '/a2a/agents/{id}/.well-known/agent.json': { GET: [] },
  },
}

/** Every address of every door. */
export const DOOR_ROUTES: readonly DoorRoute[] = Object.entries(ADDRESSES).flatMap(([door, paths]) =>
  Object.entries(paths).map(([path, methods]) => ({ door: door as DoorName, path, methods })),
)

/** Returns the pattern of a path. The name of a model may have slashes, like the rest of an unknown path. */
function patternOf(path: string): RegExp {
  const source = path.replaceAll('.', '\\.').replace(/\{(?:model|rest)\}/, '(.+?)')
  return new RegExp(`^${source.replace(/\{\w+\}/g, '([^/]+)')}$`)
}

const PATTERNS = DOOR_ROUTES.map((route) => ({ route, pattern: patternOf(route.path) }))

/** Matches the paths of all doors, for a fast refusal of any other. */
const ANY = /^\/(?:openai|mcp|a2a)(?:\/|$)|^\/api\/v1\/agents\/[^/]+\/(?:chat|ag-ui)(?:\/|$)/

/**
 * Finds the address of a door, with the values of its parameters, which are still encoded. Returns null for other
 * paths.
 */
export function findDoorRoute(path: string): { route: DoorRoute; values: readonly string[] } | null {
  if (!ANY.test(path)) return null
  for (const { route, pattern } of PATTERNS) {
    const found = pattern.exec(path)
    if (found) return { route, values: found.slice(1) }
  }
  return null
}
