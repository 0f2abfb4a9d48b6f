import { AppError } from '../errors.ts'

/** Advice on unknown paths: mostly the base URL of a client is wrong. */
const PATH_ADVICE: readonly (readonly [path: RegExp, detail: string])[] = [
  [/\/\//, 'The path has two slashes in a row. Leave one out, for example at the end of the base URL.'],
  [/\/(?:chat\/completions|responses|models)$/, 'The base URL for clients of OpenAI is /openai/v1.'],
  [
    /\/completions$/,
    'Agents answer messages: use chat/completions, and another service to complete code in an editor.',
  ],
  [
    /\/(?:embeddings|rerank|moderations|audio\/\w+|images\/\w+|videos)$/,
    'Agents answer in text alone. Choose another service for embeddings, speech and pictures in the settings of the client.',
  ],
  [/^\/openai\/v1\/(?:files|uploads)\b/, 'Files go with a message, in base64: as `file` or `image_url`.'],
  [
    /^(?:\/openai|\/api)?\/v1\/messages\b/,
    'There is no API of Anthropic. Choose OpenAI in the client, with the base URL /openai/v1.',
  ],
  [
    /^(?:\/openai|\/openai\/v1)?\/api\/(?:tags|generate|show|ps|embed)$/,
    'There is no API of Ollama. Choose OpenAI in the client, with the base URL /openai/v1.',
  ],
  [
    /^\/api\/chat$/,
    'The address of an agent for the AI SDK is /api/v1/agents/{id}/chat. Clients of Ollama use OpenAI, with the base URL /openai/v1.',
  ],
  [
    /^\/openai\/v1\/conversations(?:\/|$)/,
    'A conversation begins with the first response that names it: send a name of your choice as `conversation`.',
  ],
  [/^\/openai(?:\/|$)/, 'Clients of OpenAI find models, chat/completions and responses under /openai/v1.'],
  [/^\/(?:a2a|\.well-known\/agent)\b/, 'The card of an agent is at /a2a/agents/{id}/.well-known/agent-card.json.'],
  [/^\/(?:mcp|sse)\b/, 'MCP clients use Streamable HTTP at /mcp, or at /mcp/agents/{id} for one agent.'],
  [/\/(?:ag-ui|copilotkit)$/, 'The address of an agent for clients of AG-UI is /api/v1/agents/{id}/ag-ui.'],
  [
    /^\/(?:health|healthz?|live|livez|ready|ping|status)$/,
    'A server answers at /healthz if it runs, and at /readyz if it is ready.',
  ],
  [/^\/metrics$/, 'Metrics have a port of their own: METRICS_PORT.'],
  [
    /^(?!\/api\/v1\/)(?:\/api)?(?:\/v\d)?\/(?:agents|executions|tasks|missions|chats|spaces|skills|mcps)\b/,
    'The base URL of the REST API is /api/v1.',
  ],
]

/** Returns the 404 for a path that no API has. */
export const noSuchPath = (path = '') => {
  const [, detail] = PATH_ADVICE.find(([paths]) => paths.test(path)) ?? []
  return new AppError(404, 'Not found', {
    detail: detail ?? 'There is no such path. /api/docs and /api/openapi.json list them.',
  })
}
