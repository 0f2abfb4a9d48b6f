import { appRouter } from '../router.ts'
import * as paths from './paths.ts'
import { findRoute } from './routes.ts'

const OTHERS: ReadonlySet<string> = new Set([
  '/graphql',
  '/mcp',
  '/healthz',
  '/readyz',
  '/api/health',
  '/api/openapi.json',
  '/api/docs',
  '/api/version',
  '/.well-known/muster.json',
  '/llms.txt',
  '/.well-known/oauth-protected-resource',
  '/.well-known/oauth-protected-resource/mcp',
  '/api/auth/oidc/start',
  '/api/auth/oidc/callback',
])

/** Routes besides the procedures, for any id. */
const BESIDE: readonly (readonly [pattern: RegExp, name: string])[] = [
  ...[
    ...[
      paths.EVENTS_PATH,
      paths.CHAT_EVENTS_PATH,
      paths.FEED_STREAM_PATH,
      paths.TASK_CHANGES_PATH,
      paths.APPROVAL_CHANGES_PATH,
    ],
    ...[paths.CONTENT_PATH, paths.MEDIA_PATH, paths.SPACE_UPLOAD_PATH],
  ].map((path) => [paths.patternOf(path, '[^/]+'), path] as const),
  [/^\/api\/docs\//, '/api/docs/*'],
  [/^\/app\//, '/app/*'],
  [/^\/a2a\/agents\/[^/]+\/?$/, '/a2a/agents/{id}'],
  [/^\/a2a\/agents\/[^/]+\/\.well-known\/agent(?:-card)?\.json$/, '/a2a/agents/{id}/.well-known/agent-card.json'],
  [/^\/openai\/v1\/models\/?$/, '/openai/v1/models'],
  [/^\/openai\/v1\/models\//, '/openai/v1/models/{model}'],
  [/^\/openai\/v1\/chat\/completions\/?$/, '/openai/v1/chat/completions'],
  [/^\/openai\/v1\/responses\/?$/, '/openai/v1/responses'],
  [/^\/openai\/v1\/responses\/[^/]+\/?$/, '/openai/v1/responses/{id}'],
  [/^\/openai\/v1\/responses\/[^/]+\/(?:cancel|input_items)\/?$/, '/openai/v1/responses/{id}/*'],
  [/^\/api\/v1\/agents\/[^/]+\/chat\/?$/, '/api/v1/agents/{id}/chat'],
  [/^\/api\/v1\/agents\/[^/]+\/chat\/[^/]+\/stream\/?$/, '/api/v1/agents/{id}/chat/{chatId}/stream'],
  [/^\/api\/v1\/agents\/[^/]+\/ag-ui\/?$/, '/api/v1/agents/{id}/ag-ui'],
  [/^\/mcp\/agents\/[^/]+\/?$/, '/mcp/agents/{id}'],
]

const procedures: Readonly<Record<string, unknown>> = appRouter._def.procedures

/** Returns the route of a request, from a limited set. Unknown paths are `other`. */
export function routeOf(method: string, path: string): string {
  const known = findRoute(method, path)?.route.pattern
  if (known) return known
  if (OTHERS.has(path)) return path
  if (!path.startsWith('/trpc/')) return BESIDE.find(([pattern]) => pattern.test(path))?.[1] ?? 'other'
  const name = path.slice('/trpc/'.length)
  return Object.hasOwn(procedures, name) ? path : name.includes(',') ? '/trpc (batch)' : 'other'
}
