import { findDoorRoute } from './door-routes.ts'
import * as paths from './paths.ts'
import { procedures } from './procedures.ts'
import { findRoute } from './routes.ts'

const OTHERS: ReadonlySet<string> = new Set([
  '/graphql',
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
]

/** Returns the route of a request, from a limited set. Unknown paths are `other`. */
export function routeOf(method: string, path: string): string {
  const known = findRoute(method, path)?.route.pattern ?? findDoorRoute(path)?.route.path
  if (known) return known
  if (OTHERS.has(path)) return path
  if (!path.startsWith('/trpc/')) return BESIDE.find(([pattern]) => pattern.test(path))?.[1] ?? 'other'
  const name = path.slice('/trpc/'.length)
  return Object.hasOwn(procedures, name) ? path : name.includes(',') ? '/trpc (batch)' : 'other'
}
