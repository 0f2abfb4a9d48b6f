import type { IncomingMessage, ServerResponse } from 'node:http'
import { AppError, methodNotAllowed } from '../errors.ts'
import {
  type ConnectedServer,
  ConnectFailed,
  type ConnectProblem,
  finishSignIn,
  openSignIn,
  type Visitor,
} from '../mcps/oauth/sign-in.ts'
import { CALLBACK_PATH, CLIENT_PATH, clientMetadata, START_PATH } from '../mcps/oauth/sign-in-paths.ts'
import { basePath, publicAddress } from '../settings.ts'
import type { Context } from '../trpc.ts'
import { redirect, sendJson } from './body.ts'
import { noSuchPath } from './no-such-path.ts'

/**
 * Answers the paths of sign-ins at authorization servers of MCP servers (contract-2.md section 2.13). The first page
 * and the callback redirect a signed-in browser. A third path has the metadata of this service as a client. Throws 404
 * for other paths, and 405 for other methods.
 */
export async function handleMcpSignIn(context: Context, path: string, req: IncomingMessage, res: ServerResponse) {
  const { settings } = context.deps
  if (path !== START_PATH && path !== CALLBACK_PATH && path !== CLIENT_PATH) throw noSuchPath()
  // A HEAD would use the code up.
  if (req.method !== 'GET') throw methodNotAllowed(['GET'])
  if (path === CLIENT_PATH) return sendJson(res, 200, await clientMetadata(settings))
  res.setHeader('Cache-Control', 'no-store')
  res.setHeader('Referrer-Policy', 'no-referrer')
  const query = new URLSearchParams((req.url ?? '').split('?')[1])
  try {
    const visitor = await visitorOf(context)
    if (!visitor && path === START_PATH) return redirect(res, signInPage(context, query))
    if (!visitor) throw new ConnectFailed('other_user', 'the browser is not signed in')
    if (path === START_PATH) return redirect(res, await openSignIn(context.deps, query.get('code') ?? '', visitor))
    const finished = await finishSignIn(context.deps, query, visitor)
    redirect(res, finished instanceof URL ? finished : consolePage(context, finished))
  } catch (error) {
    const problem = error instanceof ConnectFailed ? error.problem : 'failed'
    const server = error instanceof ConnectFailed ? error.server : undefined
    const facts = { mcpId: server?.mcpId, problem, requestId: context.requestId }
    if (problem === 'failed') context.deps.log.error({ ...facts, err: error }, 'failed to connect a user')
    else context.deps.log.warn({ ...facts, reason: (error as Error).message }, 'failed to connect a user')
    redirect(res, consolePage(context, server, problem, error instanceof ConnectFailed ? error.code : undefined))
  }
}

/** Returns the browser's user and session; null for a browser without a session. */
async function visitorOf(context: Context): Promise<Visitor | null> {
  try {
    const { userId, session } = await context.person()
    return session && { userId, sessionId: session.id }
  } catch (error) {
    if (error instanceof AppError && error.status === 401) return null
    throw error
  }
}

function signInPage({ deps: { settings } }: Context, query: URLSearchParams): URL {
  const page = new URL(`${publicAddress(settings)}/app/sign-in`)
  page.search = `${new URLSearchParams({ returnTo: `${basePath(settings)}${START_PATH}?${query}` })}`
  return page
}

/** Returns the page of an MCP server in the console, with the outcome, and the code of a refusal. */
function consolePage(
  { deps: { settings } }: Context,
  server: ConnectedServer | undefined,
  problem?: ConnectProblem | 'failed',
  code?: string,
): URL {
  const page = new URL(`${publicAddress(settings)}/app/mcps`)
  const named = server && { mcp: server.mcpId, organization: server.organizationId }
  page.search = `${new URLSearchParams({ ...named, connection: problem ?? 'connected', ...(code && { code }) })}`
  return page
}
