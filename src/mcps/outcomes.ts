import { AuthorizationNeeded } from '../executions/engine/run/abort.ts'
import type { ToolUser } from '../executions/engine/run/tools.ts'
import { SecretNotAllowed } from '../secrets/resolve.ts'
import type { McpClient } from './client/client.ts'
import { type ConnectDeps, publicReason, unreachableReason } from './connect.ts'
import type { NamedServer, Prefixed } from './naming.ts'

// Reports to a run and its model which MCP servers cannot be used, or not fully.

type Warning = { text: string; code: 'mcp_unreachable' | 'secret_not_allowed' }

/**
 * Warns about the servers that cannot be used, or not fully, and returns the instructions for the model. `missing`:
 * a sentence for each server that was not asked. `unconnected`: the servers that the user must connect to first.
 */
export async function reportOutcomes<Server extends Prefixed>(
  deps: ConnectDeps,
  user: ToolUser,
  servers: readonly Server[],
  outcomes: readonly PromiseSettledResult<McpClient>[],
  missing: readonly string[],
) {
  const isService = outcomes.some(needsConnection) && (await isServiceAccount(deps, user))
  const warnings = missing.map((text): Warning => ({ text, code: 'mcp_unreachable' }))
  const unconnected: Server[] = []
  const instructions = servers.flatMap((server, index) => {
    const outcome = outcomes[index]
    if (outcome?.status === 'fulfilled') {
      const texts = missingToolsTexts(server, outcome.value)
      for (const text of texts) user.warn('tool_missing', text)
      return texts
    }
    const err: unknown = outcome?.reason
    if (err instanceof AuthorizationNeeded && !isService) {
      unconnected.push(server)
      return mustConnectText(server)
    }
    const isPersons = err instanceof AuthorizationNeeded
    const reason = isPersons ? NO_PERSON : unreachableReason(err)
    deps.log.warn({ mcpId: server.id, executionId: user.row.id, reason, err }, 'failed to reach an MCP server')
    const code = err instanceof SecretNotAllowed ? 'secret_not_allowed' : 'mcp_unreachable'
    warnings.push({ text: unusableText(server, isPersons ? NO_PERSON : publicReason(err)), code })
    return unreachableText(server)
  })
  for (const { code, text } of warnings) user.warn(code, text)
  return { unusable: warnings.map(({ text }) => text), unconnected, instructions }
}

const needsConnection = (outcome: PromiseSettledResult<unknown>) =>
  outcome.status === 'rejected' && outcome.reason instanceof AuthorizationNeeded

/** Returns whether a user is a service account, which has no browser to connect in. */
const isServiceAccount = async ({ db }: ConnectDeps, { row: { userId } }: ToolUser) =>
  (await db.serviceAccount.findUnique({ where: { userId }, select: { userId: true } })) !== null

const NO_PERSON = 'a service account cannot connect to it: let the server use `auth: client_credentials`'

/** Returns the name of the tool with which a model asks the user to connect to a server. */
export const connectName = (prefix: string) => `connect_to_${prefix}`

/** Returns the sentence for a server that cannot be used. */
export const unusableText = ({ name }: { name: string }, reason: string) =>
  `The MCP server "${name}" cannot be used: ${reason}`

const mustConnectText = ({ name, prefix }: Prefixed) =>
  `The tools of the MCP server "${name}" can be used once the user has connected to it. If you need them, call ${connectName(prefix)}.`

/** Returns the sentence for the model about a server that cannot be reached. */
export const unreachableText = ({ name }: NamedServer) =>
  `The tools of the MCP server "${name}" cannot be used now: it cannot be reached.`

const incompleteText = ({ name }: NamedServer) =>
  `The MCP server "${name}" has more tools than can be used: these are its first ones. To choose others, name them in allowedTools of the agent.`

/** Describes the tools of a server that no run can use. */
const missingToolsTexts = (server: NamedServer, { hasMore, omitted }: Pick<McpClient, 'hasMore' | 'omitted'>) => [
  ...(hasMore ? [incompleteText(server)] : []),
  ...(omitted.length ? [unusableToolsText(server, omitted)] : []),
]

const unusableToolsText = ({ name }: NamedServer, omitted: readonly string[]) =>
  `The MCP server "${name}" has tools that cannot be used, because of the size or the names in their schemas: ${omitted.join(', ')}`
