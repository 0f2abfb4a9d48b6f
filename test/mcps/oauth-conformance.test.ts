import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { fileURLToPath } from 'node:url'
import { describe, expect, it } from 'vitest'
import { AuthorizationNeeded } from '../../src/executions/engine/run/abort.ts'
import { createQueues } from '../../src/lib/queues.ts'
import { connect } from '../../src/mcps/connect.ts'
import { signedIn } from '../support/browser-session.ts'
import { runConformance } from '../support/conformance.ts'
import { listen } from '../support/listen.ts'
import { signInTo } from '../support/oauth-mcp.ts'
import { request } from '../support/rest.ts'
import { startServer } from '../support/server.ts'
import { use } from '../support/use.ts'

// The official conformance tests of clients, for authorization (contract-2.md section 2.13): a whole service is the
// client.

const server = await use(startServer({ ALLOW_PRIVATE_NETWORK: 'true' }))
const ann = await server.member({ organization: 'Acme' })

type Context = { client_id?: string; client_secret?: string }

/** Maximum number of sign-ins of a client: one, and one for more scope. */
const MAX_SIGN_INS = 2

async function signIn(id: string, browser: Parameters<typeof signInTo>[3]): Promise<void> {
  for (let left = 10; ; left--) {
    try {
      return void (await signInTo(server, id, ann, browser))
    } catch (error) {
      if (!left || !(error as Error).message.includes(LATE)) throw error
    }
  }
}

/** Adds an MCP server, connects as its user, and calls its first tool. */
async function act(url: string, scenario: string, { client_id, client_secret }: Context): Promise<void> {
  const auth = scenario.startsWith('auth/client-credentials') ? 'client_credentials' : 'oauth'
  const client = { ...(client_id && { clientId: client_id }), ...(client_secret && { clientSecret: client_secret }) }
  const body = { name: scenario, url, auth, ...client }
  const created = await request(server, 'POST', '/api/v1/mcps', { token: ann.token, body })
  const { deps } = server.service
  const browser = await signedIn(server, ann.userId)
  for (let signIns = 0; ; signIns++) {
    const row = await deps.db.mcpServer.findUniqueOrThrow({ where: { id: created.body.id } })
    const run = { userId: ann.userId, spaceId: null, isForeign: false }
    const { signal } = new AbortController()
    try {
      const mcp = await connect(deps, row, signal, run)
      const [tool] = mcp.tools
      if (tool) await mcp.call(tool.name, {}, signal).finally(() => mcp.close())
      return
    } catch (error) {
      if (!(error instanceof AuthorizationNeeded) || signIns === MAX_SIGN_INS) throw error
      await signIn(row.id, browser)
    }
  }
}

// All scenarios start their programs at once, so that a slow machine answers no request in time: few act together, and
// a sign-in that got no answer is repeated.
const inTurn = createQueues(2)
const LATE = 'did not answer in time'

const handle = async (req: IncomingMessage, res: ServerResponse) => {
  const { searchParams } = new URL(req.url ?? '', 'http://localhost')
  const [url = '', scenario = '', context = ''] = ['url', 'scenario', 'context'].map(
    (name) => searchParams.get(name) ?? '',
  )
  // The service has tests of its own for the rest of the protocol.
  if (!scenario.startsWith('auth/')) return void res.writeHead(404).end()
  const failed = await inTurn('all', AbortSignal.any([]), () => act(url, scenario, JSON.parse(context))).then(
    () => null,
    (error: Error) => error,
  )
  res.writeHead(failed ? 500 : 200).end()
}

/** Scenarios of optional parts that the service does not have. */
const LEFT_OUT = [
  // The document's address there is not the one of this service.
  'auth/basic-cimd',
  'auth/client-credentials-jwt',
  'auth/enterprise-managed-authorization',
  'auth/dpop',
  'auth/dpop-nonce',
  'auth/wif-jwt-bearer',
]

describe('the conformance tests of authorization', () => {
  it('pass with the service as their client', async () => {
    const control = createServer(handle)
    const port = await listen(control)
    try {
      const MUSTER_CONTROL = `http://127.0.0.1:${port}`
      const command = `${process.execPath} ${fileURLToPath(import.meta.resolve('../support/conformance-client.mjs'))}`
      const failures = await runConformance(['client', '--suite', 'all', '--timeout', '170000', '--command', command], {
        MUSTER_CONTROL,
      })
      const ours = Object.entries(failures).filter(([name]) => name.startsWith('auth/') && !LEFT_OUT.includes(name))
      expect(ours.length).toBeGreaterThan(20)
      expect(Object.fromEntries(ours.filter(([, checks]) => checks.length))).toEqual({})
    } finally {
      control.closeAllConnections()
      control.close()
    }
  })
})
